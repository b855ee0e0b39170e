// Colours over pictures: maps of phrases and masks of classes.

export const COLOURS = ["#e6194b", "#2f7ed8", "#f5a623", "#1b9e5a", "#8e44ad", "#00b8c4", "#e377c2", "#8c6d31"];
export const phraseColour = (place) => COLOURS[place % COLOURS.length];
const parse = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

export function classColour(one) {
  const hue = (one * 0.618033988749895) % 1, value = [1, 0.75, 0.55][one % 3];
  const channel = (shift) => {
    const k = (shift + hue * 6) % 6;
    return Math.round(255 * value * (1 - 0.85 * Math.max(0, Math.min(k, 4 - k, 1))));
  };
  return [channel(5), channel(3), channel(1)];
}

// A map's cells, row by row, to side × side by Catmull-Rom splines: patches melt into one another.
function enlarge({ rows, columns, cells }, side) {
  const wide = new Float32Array(rows * side), whole = new Float32Array(side * side);
  const along = (length, read, write) => {
    for (let at = 0; at < side; at++) {
      const place = ((at + 0.5) * length) / side - 0.5, low = Math.floor(place), t = place - low;
      const [a, b, c, d] = [-1, 0, 1, 2].map((step) => read(Math.min(length - 1, Math.max(0, low + step))));
      write(at, b + 0.5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a))));
    }
  };
  for (let row = 0; row < rows; row++) along(columns, (i) => cells[row * columns + i], (at, v) => { wide[row * side + at] = v; });
  for (let x = 0; x < side; x++) along(rows, (i) => wide[i * side + x], (at, v) => { whole[at * side + x] = Math.min(1, Math.max(0, v)); });
  return whole;
}

// Each map in its colour, as strong as it says; where maps meet, the stronger has the greater part of the colour.
export function drawMaps(canvas, maps, { colours, sink = true, side = 112, opacity = 0.8 } = {}) {
  canvas.width = canvas.height = side;
  const context = canvas.getContext("2d"), image = context.createImageData(side, side);
  const layers = maps.map((map) => enlarge(map, side)), shares = maps.map((map) => (sink ? map.kept : 1));
  const inks = maps.map((_, place) => parse(colours ? colours[place] : phraseColour(place)));
  for (let at = 0; at < side * side; at++) {
    let total = 1e-6, most = 0;
    const ink = [0, 0, 0];
    layers.forEach((layer, place) => {
      const strength = layer[at] * shares[place], part = strength * strength;
      most = Math.max(most, strength);
      total += part;
      for (let c = 0; c < 3; c++) ink[c] += part * inks[place][c];
    });
    for (let c = 0; c < 3; c++) image.data[4 * at + c] = ink[c] / total;
    image.data[4 * at + 3] = 255 * opacity * most;
  }
  context.putImageData(image, 0, 0);
}

// One number a cell as light: dark where nothing is, gold to white where the text looks.
export function drawHeat(canvas, map, side = 72) {
  canvas.width = canvas.height = side;
  const context = canvas.getContext("2d"), image = context.createImageData(side, side), layer = enlarge(map, side);
  for (let at = 0; at < side * side; at++) {
    const v = layer[at] * Math.min(1, 0.35 + map.kept);
    image.data.set([255, 120 + 120 * v, 40 + 60 * v * v, 215 * Math.pow(v, 1.2)], 4 * at);
  }
  context.putImageData(image, 0, 0);
}

// A PNG whose grey values are class numbers, in colour. `only` shows one class alone.
export async function drawMask(canvas, base64, only = -1) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const mask = await createImageBitmap(new Blob([bytes], { type: "image/png" }), { colorSpaceConversion: "none" });
  canvas.width = mask.width;
  canvas.height = mask.height;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(mask, 0, 0);
  const image = context.getImageData(0, 0, mask.width, mask.height);
  for (let at = 0; at < image.data.length; at += 4) {
    const one = image.data[at];
    image.data.set([...classColour(one), only < 0 || only === one ? 155 : 0], at);
  }
  context.putImageData(image, 0, 0);
}
