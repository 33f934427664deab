// Attention by offset and head: a grid of heads, and the curve of the head that is chosen.
(() => {
  const view = document.getElementById("attention-view");
  const data = JSON.parse(document.getElementById("attention-data").textContent);
  const bytes = Uint8Array.from(atob(data.weights), c => c.charCodeAt(0));
  const codes = new DataView(bytes.buffer);
  const [low, high] = data.offsets, width = high - low + 1;
  const layers = data.layers.length, heads = data.heads;
  const weight = (head, k) => codes.getUint16(2 * (head * width + k), true) / 65535;
  const svg = (name, parent, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    parent.append(made);
    return made;
  };
  const label = (parent, x, y, text, anchor = "middle") =>
    svg("text", parent, {x, y, "text-anchor": anchor, class: "label"}).textContent = text;
  const [grid, plot] = view.querySelectorAll("svg"), choice = view.querySelector("select");
  for (const name of Object.keys(data.maps)) choice.add(new Option(name));

  // The grid: one row a layer, one column a head.
  const cell = Math.max(5, Math.floor(380 / heads)), row = Math.max(5, Math.min(22, Math.floor(460 / layers)));
  grid.setAttribute("viewBox", `0 0 ${44 + heads * cell} ${34 + layers * row}`);
  const cells = [];
  for (let i = 0; i < layers * heads; i++) {
    const [y, x] = [Math.floor(i / heads), i % heads];
    const made = svg("rect", grid, {x: 40 + x * cell, y: 4 + y * row, width: cell - 1, height: row - 1, class: "cell"});
    made.addEventListener("pointerenter", () => choose(i));
    made.addEventListener("click", () => choose(i));
    cells.push(made);
  }
  const every = Math.ceil(14 / row);
  data.layers.forEach((name, y) => y % every || label(grid, 34, 4 + (y + 0.8) * row, name, "end"));
  for (let x = 0; x < heads; x += Math.ceil(22 / cell)) label(grid, 40 + (x + 0.5) * cell, 18 + layers * row, x);
  label(grid, 40 + heads * cell / 2, 31 + layers * row, "head");

  // The plot: weights on a logarithmic scale from 1e-4 to 1.
  const W = 520, H = 300, left = 52, bottom = 42, floor = 1e-4;
  plot.setAttribute("viewBox", `0 0 ${W} ${H}`);
  const px = k => left + (W - left - 10) * k / Math.max(1, width - 1);
  const py = w => 10 + (H - bottom - 10) * Math.log10(Math.max(w, floor)) / Math.log10(floor);
  for (const w of [1, 0.1, 0.01, 0.001, 0.0001]) {
    svg("line", plot, {x1: left, x2: W - 10, y1: py(w), y2: py(w), class: "rule"});
    label(plot, left - 6, py(w) + 4, `${100 * w} %`, "end");
  }
  const step = Math.max(1, Math.ceil(width / 6));
  for (let o = low - low % step; o <= high; o += step) if (o >= low) label(plot, px(o - low), H - bottom + 16, String(o).replace("-", "−"));
  label(plot, (W + left) / 2, H - 6, "offset of the key from the query, tokens");
  const path = head => Array.from({length: width}, (_, k) => `${k ? "L" : "M"}${px(k).toFixed(1)} ${py(weight(head, k)).toFixed(1)}`).join("");
  const median = Array.from({length: width}, (_, k) => {
    const all = Array.from({length: layers * heads}, (_, i) => weight(i, k)).sort((a, b) => a - b);
    return `${k ? "L" : "M"}${px(k).toFixed(1)} ${py(all[all.length >> 1]).toFixed(1)}`;
  }).join("");
  svg("path", plot, {d: median, class: "median"});
  const line = svg("path", plot, {class: "line"});

  let chosen = 0;
  function colour() {
    const map = data.maps[choice.value].flat(), top = Math.max(1, ...map);
    cells.forEach((made, i) => made.style.setProperty("--value", `${100 * Math.max(0, map[i]) / top}%`));
  }
  function choose(i) {
    cells[chosen].classList.remove("chosen");
    chosen = Math.max(0, Math.min(cells.length - 1, i));
    cells[chosen].classList.add("chosen");
    line.setAttribute("d", path(chosen));
    const [y, x] = [Math.floor(chosen / heads), chosen % heads];
    const said = Object.entries(data.maps).map(([name, map]) => `${name} ${+map[y][x].toPrecision(2)}`);
    view.querySelector("output").textContent = `Head ${data.layers[y]}.${x}: ${said.join("; ")}.`;
  }
  const moves = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -heads, ArrowDown: heads};
  grid.addEventListener("keydown", event => {
    if (event.key in moves) { choose(chosen + moves[event.key]); event.preventDefault(); }
  });
  choice.addEventListener("change", colour);
  view.hidden = false;
  colour();
  choose(0);
})();
