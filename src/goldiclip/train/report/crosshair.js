// A crosshair in every chart: the values of all lines at the step under the pointer.
const [LEFT, RIGHT, TOP, BOTTOM, WIDTH, HEIGHT] = [46, 10, 10, 24, 440, 220];
const short = v => {
  const a = Math.abs(v);
  return a >= 1e6 ? (v / 1e6).toPrecision(4) + "M" : a >= 1e4 ? (v / 1e3).toPrecision(4) + "k" : String(Number(v.toPrecision(4)));
};
for (const figure of document.querySelectorAll(".chart")) {
  const svg = figure.querySelector("svg"), cross = svg.querySelector(".cross");
  const { span: [low, high], axis: [bottom, top, isLog], lines } = JSON.parse(figure.querySelector("script").textContent);
  const f = isLog ? Math.log10 : v => v;
  const x = step => LEFT + (WIDTH - LEFT - RIGHT) * (high > low ? (step - low) / (high - low) : 0.5);
  const y = v => TOP + (HEIGHT - TOP - BOTTOM) * (1 - (f(v) - f(bottom)) / (f(top) - f(bottom)));
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect(), at = (event.clientX - box.left) / box.width * WIDTH;
    const step = low + (high - low) * (at - LEFT) / (WIDTH - LEFT - RIGHT);
    const near = lines.map(line => line.points.reduce((a, b) => Math.abs(b[0] - step) < Math.abs(a[0] - step) ? b : a));
    const px = x(near[0][0]), end = px > WIDTH / 2, anchor = end ? "end" : "start", tx = px + (end ? -8 : 8);
    const dots = near.map((p, i) => `<circle class="c${lines[i].colour}" r="3.5" cx="${x(p[0])}" cy="${y(p[1])}"/>`).join("");
    const rows = near.map((p, i) => `<text x="${tx}" y="${TOP + 26 + 14 * i}" text-anchor="${anchor}">${lines[i].name} ${short(p[1])}</text>`).join("");
    cross.innerHTML = `<line x1="${px}" x2="${px}" y1="${TOP}" y2="${HEIGHT - BOTTOM}"/>${dots}` +
      `<text x="${tx}" y="${TOP + 12}" text-anchor="${anchor}">step ${Math.round(near[0][0])}</text>${rows}`;
    cross.removeAttribute("hidden");
  });
  svg.addEventListener("pointerleave", () => cross.setAttribute("hidden", ""));
}
