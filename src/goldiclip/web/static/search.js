// The search page: words or a picture in, cards out, as they come.

import { about, imageURL, lines, upload } from "./api.js";
import { drawHeat } from "./draw.js";
import { isOpen, openPicture } from "./picture.js";

const at = (id) => document.getElementById(id);
const state = { hits: [], first: [], maps: {}, brought: null, running: null, asked: "" };

function trouble(message) {
  at("trouble").textContent = message ?? "";
  at("trouble").hidden = !message;
}

// --- searching ------------------------------------------------------------------------------------------------------

async function search() {
  const text = at("text").value.trim();
  state.running?.abort();
  history.replaceState(null, "", text ? `?q=${encodeURIComponent(text)}` : "/");
  trouble();
  if (!text && !state.brought) return show({ hits: [], first: [], maps: {} }, "");
  const running = (state.running = new AbortController());
  const asked = { text, ...state.brought?.reference };
  at("status").textContent = "…";
  try {
    for await (const line of lines("search/stream", asked, running.signal)) {
      if (running.signal.aborted) return;
      if (line.stage === "first") show({ hits: line.hits, first: line.hits, maps: {} }, `${line.hits.length} at first sight in ${Math.round(line.milliseconds)} ms …`);
      if (line.stage === "second") show({ hits: line.hits, maps: {} }, `${line.hits.length} found in ${Math.round(line.milliseconds)} ms`);
      if (line.stage === "maps") heat(line.maps);
      if (line.stage === "done") at("grid").dataset.done = text;
      if (line.stage === "error") trouble(line.detail);
      if (line.notices?.length) trouble(line.notices.join("; "));
    }
  } catch (error) {
    if (error.name === "AbortError") return;
    at("status").textContent = "";
    trouble(error.message);
  }
}

function show(found, status) {
  Object.assign(state, found);
  at("status").textContent = status;
  at("empty").hidden = state.hits.length > 0;
  delete at("grid").dataset.done;
  at("grid").replaceChildren(...state.hits.map((hit, rank) => card(hit, rank, state.hits, true)));
  at("first").replaceChildren(...state.first.map((hit, rank) => card(hit, rank, state.first, false)));
  at("second").replaceChildren(...state.hits.map((hit, rank) => card(hit, rank, state.hits, true)));
  if (!state.hits.length && status) at("status").textContent = "nothing found";
}

function card(hit, rank, hits, isFinal) {
  const made = document.createElement("button");
  made.className = "card";
  made.type = "button";
  made.dataset.id = hit.id;
  made.style.animationDelay = `${Math.min(rank, 12) * 18}ms`;
  const face = part("div", "face"), image = part("img"), moved = hit.first_rank - rank;
  image.src = imageURL(hit.id, 320);
  image.alt = hit.record.caption ?? hit.id;
  image.loading = "lazy";
  face.append(image, part("canvas"), part("span", "rank", rank + 1));
  if (isFinal && moved) face.append(part("span", moved > 0 ? "move" : "move down", `${moved > 0 ? "▲" : "▼"} ${Math.abs(moved)}`));
  const under = part("div", "under");
  under.append(part("span", "", hit.id.split("/").pop()), part("span", "", (isFinal ? hit.score : hit.text_agnostic).toFixed(2)));
  made.append(face, under);
  made.title = `${hit.id}\nscore ${hit.score.toFixed(3)} · text-agnostic ${hit.text_agnostic.toFixed(3)}, rank ${hit.first_rank + 1}`;
  made.addEventListener("click", () => openPicture(hits.map((one) => ({ image: one.id })), rank, at("text").value));
  return made;
}

function part(tag, name = "", text = "") {
  const made = document.createElement(tag);
  made.className = name;
  if (text !== "") made.textContent = text;
  return made;
}

function heat(maps) {
  Object.assign(state.maps, maps);
  for (const made of document.querySelectorAll(".card:not(.mapped)")) {
    const map = maps[made.dataset.id];
    if (!map) continue;
    drawHeat(made.querySelector("canvas"), map);
    made.classList.add("mapped");
  }
}

// --- pictures that are brought ---------------------------------------------------------------------------------------

async function bring(file, isDropped) {
  trouble();
  try {
    const { upload: name } = await upload(file);
    const reference = { upload: name }, url = URL.createObjectURL(file);
    if (isDropped) openPicture([{ ...reference, url, name: file.name }], 0, at("text").value);
    else searchWith(reference, url);
  } catch (error) {
    trouble(`${file.name}: ${error.message}`);
  }
}

function searchWith(reference, url) {
  state.brought = { reference };
  at("brought").querySelector("img").src = url;
  at("brought").hidden = false;
  search();
}

addEventListener("search-with", ({ detail }) => searchWith(detail.reference, detail.url));
at("brought").querySelector("button").addEventListener("click", () => {
  state.brought = null;
  at("brought").hidden = true;
  search();
});
at("file").addEventListener("change", ({ target }) => {
  if (target.files[0]) bring(target.files[0], false);
  target.value = "";
});
addEventListener("dragover", (event) => {
  if (!event.dataTransfer.types.includes("Files")) return;
  event.preventDefault();
  at("drop").hidden = false;
});
addEventListener("dragleave", (event) => { if (!event.relatedTarget) at("drop").hidden = true; });
addEventListener("drop", (event) => {
  event.preventDefault();
  at("drop").hidden = true;
  if (event.dataTransfer.files[0]) bring(event.dataTransfer.files[0], true);
});

// --- controls -------------------------------------------------------------------------------------------------------

let waiting;
at("text").addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(search, 350);
});
at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(waiting);
  search();
});
at("heat").addEventListener("change", ({ target }) => document.body.classList.toggle("heated", target.checked));
document.body.classList.toggle("heated", at("heat").checked);
for (const [name, other] of [["grid", "pair"], ["pair", "grid"]]) {
  at(`as-${name}`).addEventListener("click", () => {
    at(name).hidden = false;
    at(other).hidden = true;
    at(`as-${name}`).setAttribute("aria-pressed", "true");
    at(`as-${other}`).setAttribute("aria-pressed", "false");
  });
}

addEventListener("keydown", (event) => {
  if (isOpen() || event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches("input:not([type=checkbox]), textarea");
  if (event.key === "/" && !typing) {
    event.preventDefault();
    at("text").select();
  }
  const cards = [...document.querySelectorAll(".card")].filter((one) => one.offsetParent), here = cards.indexOf(document.activeElement);
  const columns = Math.max(1, cards.findIndex((one) => one.offsetTop > cards[0].offsetTop));
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
  if (step && cards.length && (here >= 0 || (event.key === "ArrowDown" && typing))) {
    event.preventDefault();
    if (here >= 0 && here + step < 0) at("text").focus();
    else cards[Math.min(cards.length - 1, here < 0 ? 0 : here + step)].focus();
  }
});

const root = document.documentElement;
root.dataset.theme = localStorage.getItem("theme") ?? "";
at("theme").addEventListener("click", () => {
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
});

about().then((known) => {
  at("about").textContent = `${known.pictures.toLocaleString()} pictures`;
  if (!known.looks_twice) for (const id of ["as-pair", "tab-words"]) at(id).disabled = true;
  if (!known.speaks) at("tab-talk").hidden = true;
  if (!known.segments.length) at("tab-masks").hidden = true;
}, (error) => trouble(error.message));

at("text").value = new URLSearchParams(location.search).get("q") ?? "";
if (at("text").value) search();
