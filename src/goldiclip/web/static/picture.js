// One picture, large: where words are in it, its masks, and what the decoder says of it.

import { imageURL, post } from "./api.js";
import { classColour, drawMaps, drawMask, phraseColour } from "./draw.js";

const dialog = document.getElementById("picture"), at = (id) => document.getElementById(id);
const stage = dialog.querySelector(".stage"), image = stage.querySelector("img");
const canvas = stage.querySelector("canvas"), box = stage.querySelector(".box");
const state = { pictures: [], place: 0, maps: null, mask: null, only: -1, located: null };

export const isOpen = () => dialog.open;

export function openPicture(pictures, place, sentence) {
  state.pictures = pictures;
  if (!dialog.open) dialog.showModal();
  turnTo(place);
  at("sentence").value = sentence;
  if (sentence.trim() && !at("tab-words").disabled) colour();
}

const reference = () => {
  const { image: id, upload } = state.pictures[state.place];
  return upload ? { upload } : { image: id };
};

function turnTo(place) {
  state.place = place;
  const one = state.pictures[place];
  clear();
  image.src = one.url ?? imageURL(one.image, 1280);
  image.alt = at("name").textContent = one.name ?? one.image;
  at("said").replaceChildren();
  at("shares").replaceChildren();
  at("legend").replaceChildren();
  at("coloured").hidden = true;
}

function clear() {
  Object.assign(state, { maps: null, mask: null, located: null, only: -1 });
  canvas.width = canvas.height = 1;
  box.hidden = true;
  stage.classList.remove("lit");
  delete stage.dataset.shows;
  trouble();
}

function trouble(message) {
  at("picture-trouble").textContent = message ?? "";
  at("picture-trouble").hidden = !message;
}

// The picture as large as the stage allows, and everything drawn over it in the same place.
function place() {
  if (!image.naturalWidth) return;
  const scale = Math.min(stage.clientWidth / image.naturalWidth, stage.clientHeight / image.naturalHeight);
  const width = image.naturalWidth * scale, height = image.naturalHeight * scale;
  const left = (stage.clientWidth - width) / 2, top = (stage.clientHeight - height) / 2;
  for (const one of [image, canvas]) Object.assign(one.style, { left: `${left}px`, top: `${top}px`, width: `${width}px`, height: `${height}px` });
  if (state.located) {
    const [x0, y0, x1, y1] = state.located;
    Object.assign(box.style, { left: `${left + x0 * width}px`, top: `${top + y0 * height}px`, width: `${(x1 - x0) * width}px`, height: `${(y1 - y0) * height}px` });
  }
  box.hidden = !state.located;
}
image.addEventListener("load", place);
new ResizeObserver(place).observe(stage);

async function asking(button, call) {
  trouble();
  const turned = state.place;
  if (button) button.disabled = true;
  try {
    const answer = await call();
    if (state.place !== turned || !dialog.open) return null;
    if (answer.notices?.length) trouble(answer.notices.join("; "));
    return answer;
  } catch (error) {
    trouble(error.message);
    return null;
  } finally {
    if (button) button.disabled = false;
  }
}

// --- words ----------------------------------------------------------------------------------------------------------

async function colour() {
  const text = at("sentence").value.trim(), button = at("words").querySelector(".go");
  if (!text) return;
  const found = await asking(button, () => post("phrases", { text }));
  if (!found) return;
  const spans = found.spans.length ? found.spans.slice(0, 8) : [{ phrase: text.slice(0, 300), start: 0, end: text.length }];
  const maps = await asking(button, () => post("heatmap", { ...reference(), phrases: spans.map((span) => span.phrase) }));
  if (!maps) return;
  clear();
  state.maps = maps.maps;
  if (maps.notices.length) trouble(maps.notices.join("; "));
  write(text, spans);
  redraw();
}

function write(text, spans) {
  const parts = [];
  let end = 0;
  spans.forEach((span, number) => {
    const mark = document.createElement("mark");
    mark.textContent = text.slice(span.start, span.end);
    parts.push(text.slice(end, span.start), mark);
    single(mark, number);
    end = span.end;
  });
  at("coloured").replaceChildren(...parts, text.slice(end));
  at("coloured").hidden = false;
  at("legend").replaceChildren(...state.maps.map((map, number) => {
    const row = legendRow(map.phrase, `${Math.round(100 * (1 - map.kept))}% to the sink`);
    single(row, number);
    return row;
  }));
}

function legendRow(name, value) {
  const row = document.createElement("li"), label = document.createElement("span"), output = document.createElement("output");
  label.textContent = name;
  output.textContent = value;
  row.append(label, output);
  row.tabIndex = 0;
  return row;
}

// Pointing at a phrase, or going to it by keyboard, shows it alone.
function single(element, number, ink = phraseColour(number), show = redraw) {
  element.style.setProperty("--c", ink);
  element.dataset.number = number;
  const only = (value) => () => {
    state.only = value;
    show();
  };
  element.addEventListener("pointerenter", only(number));
  element.addEventListener("focus", only(number));
  element.addEventListener("pointerleave", only(-1));
  element.addEventListener("blur", only(-1));
}

function redraw() {
  if (!state.maps) return;
  const shown = state.maps.map((map, number) => ({ map, number })).filter(({ number }) => state.only < 0 || state.only === number);
  drawMaps(canvas, shown.map(({ map }) => map), { colours: shown.map(({ number }) => phraseColour(number)), sink: at("sink").checked, side: 160 });
  light("phrases");
  for (const one of dialog.querySelectorAll("#words [data-number]")) one.classList.toggle("on", Number(one.dataset.number) === state.only);
}

function light(what) {
  stage.classList.add("lit");
  stage.dataset.shows = what;
  place();
}

at("words").querySelector("form").addEventListener("submit", (event) => { event.preventDefault(); colour(); });
at("sentence").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); colour(); }
});
at("sink").addEventListener("change", redraw);

// --- masks ----------------------------------------------------------------------------------------------------------

at("masks").querySelector("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const classes = at("classes").value.split("\n").map((one) => one.trim()).filter(Boolean);
  const found = await asking(event.submitter, () => post("segment", { ...reference(), classes }));
  if (!found) return;
  clear();
  state.mask = found.mask;
  const order = found.shares.map((share, number) => [share, number]).sort((a, b) => b[0] - a[0]);
  at("shares").replaceChildren(...order.map(([share, number]) => {
    const row = legendRow(found.classes[number], `${(100 * share).toFixed(0)}%`);
    single(row, number, `rgb(${classColour(number)})`, mask);
    return row;
  }));
  await mask();
});

async function mask() {
  if (!state.mask) return;
  await drawMask(canvas, state.mask, state.only);
  light("classes");
}

// --- what the decoder says ------------------------------------------------------------------------------------------

function say(what, text, confidence) {
  const row = document.createElement("li"), small = document.createElement("small");
  small.textContent = `${what} · confidence ${Math.round(100 * confidence)}%`;
  row.append(text, small);
  at("said").prepend(row);
}

at("caption").addEventListener("click", async ({ target }) => {
  const said = await asking(target, () => post("caption", reference()));
  if (said) say("caption", said.text || "…", said.confidence);
});
at("question").addEventListener("submit", async (event) => {
  event.preventDefault();
  const question = event.target.querySelector("input").value.trim();
  const said = question && (await asking(event.submitter, () => post("ask", { ...reference(), question })));
  if (said) say(question, said.text || "…", said.confidence);
});
at("locate").addEventListener("submit", async (event) => {
  event.preventDefault();
  const phrase = event.target.querySelector("input").value.trim();
  const found = phrase && (await asking(event.submitter, () => post("locate", { ...reference(), phrase })));
  if (!found) return;
  clear();
  state.located = found.box;
  stage.dataset.shows = "box";
  place();
  say("box", phrase, found.confidence);
});

// --- controls -------------------------------------------------------------------------------------------------------

const tabs = [...dialog.querySelectorAll("[role=tab]")];
for (const tab of tabs) {
  tab.addEventListener("click", () => {
    for (const one of tabs) {
      one.setAttribute("aria-selected", String(one === tab));
      at(one.getAttribute("aria-controls")).hidden = one !== tab;
    }
  });
}
at("close").addEventListener("click", () => dialog.close());
at("alike").addEventListener("click", () => {
  dispatchEvent(new CustomEvent("search-with", { detail: { reference: reference(), url: image.src } }));
  dialog.close();
});
dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
dialog.addEventListener("close", () => {
  clear();
  document.querySelector(`.card[data-id="${CSS.escape(state.pictures[state.place]?.image ?? "")}"]`)?.focus();
});
dialog.addEventListener("keydown", (event) => {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!step || event.target.matches("input:not([type=checkbox]), textarea")) return;
  const next = state.place + step;
  if (next < 0 || next >= state.pictures.length) return;
  event.preventDefault();
  const sentence = at("sentence").value;
  openPicture(state.pictures, next, sentence);
});
