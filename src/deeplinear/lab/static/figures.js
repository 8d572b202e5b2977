// Pictures as data to pictures on the page. Colours are those of Okabe and Ito, safe for colour-blind eyes.

import { announce, download, element, short } from "./dom.js";

const PALETTE = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#111111"];
const PALETTE_DARK = ["#56a8e0", "#ff8c42", "#2fcf9f", "#e79cc4", "#f2bd4b", "#9ad4f5", "#c9ab6f", "#f5f5f5"];
const SCALE = "Cividis";
const DIVERGING = [[0, "#2166ac"], [0.5, "#f7f7f7"], [1, "#b2182b"]];

const dark = () => document.documentElement.dataset.theme === "dark";
const colour = (index) => (dark() ? PALETTE_DARK : PALETTE)[index % PALETTE.length];
const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// How much larger letters are than usual: they follow those of the page.
const unit = () => Number.parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;

// Labels of a logarithmic axis over so many powers of ten: powers of ten, or plain numbers where there are too few.
function ticks(decades, most) {
  return decades < 2 ? { tickmode: "auto", nticks: 5, dtick: null, tickformat: "~g" } : { tickmode: "linear", nticks: 0, tick0: 0, dtick: Math.max(1, Math.ceil(decades / most)), tickformat: "" };
}

const ROWS = 6; // labels of an axis, one above the other
const fitting = (width) => Math.min(8, Math.max(2, Math.floor(width / (80 * unit())))); // labels side by side

// The powers of ten that positive numbers span.
function span(lists) {
  let [low, high] = [Infinity, -Infinity];
  for (const list of lists) for (const value of list) if (value > 0) [low, high] = [Math.min(low, value), Math.max(high, value)];
  return high > low ? Math.log10(high / low) : 0;
}

function axis(given, values, seen, most) {
  const decades = () => seen ?? (given.low > 0 && given.high > 0 ? Math.log10(given.high / given.low) : span(values));
  const range = given.low !== null && given.high !== null ? { range: given.log ? [Math.log10(given.low), Math.log10(given.high)] : [given.low, given.high] } : {};
  return {
    title: { text: given.label, standoff: 8 }, type: given.log ? "log" : "linear", exponentformat: "power", automargin: true, zeroline: false,
    gridcolor: ink("--line"), linecolor: ink("--line"), ...(given.log ? ticks(decades(), most) : {}), ...range,
  };
}

function trace(one) {
  const base = { name: one.name, x: one.x, y: one.y, showlegend: one.legend, opacity: one.faint ? 0.6 : 1, hovertemplate: "%{x:.4g}, %{y:.4g}<extra>" + one.name.replace(/[<>&%]/g, "") + "</extra>" };
  if (one.style === "bars") return { ...base, type: "bar", marker: { color: colour(one.colour) } };
  if (one.style === "points") return { ...base, type: "scatter", mode: "markers", marker: { color: colour(one.colour), size: one.faint ? 4 : 8, line: { width: one.faint ? 0 : 1, color: ink("--card") } } };
  const dash = { line: "solid", dash: "dash", dot: "dot" }[one.style];
  return { ...base, type: "scatter", mode: "lines", line: { color: colour(one.colour), width: one.faint ? 1.2 : 2.2, dash }, connectgaps: false };
}

// Points in a map stand on dark and on light ground: a light ring in a dark one around each.
function ringed(one) {
  const drawn = trace(one);
  if (one.style !== "points" || one.faint) return [drawn];
  const ring = { ...drawn, marker: { color: "#111111", size: 18 }, showlegend: false, hoverinfo: "skip", hovertemplate: null };
  return [ring, { ...drawn, marker: { color: colour(one.colour), size: 10, line: { width: 3, color: "#ffffff" } } }];
}

// A number in a cell: three digits, and with zeros where a number that is not whole would look so.
function cell(value) {
  const text = short(Number(value.toPrecision(3)));
  return Number.isInteger(Number(text)) && Math.abs(value - Number(text)) > 1e-12 && !text.includes("e") ? value.toPrecision(3) : text;
}

// The largest letters with which every text fits into a cell; none if they would be too small to read.
function letters(texts, side) {
  const longest = Math.max(...texts.flat().map((text) => text.length));
  return [11, 10, 9].map((size) => size * unit()).find((size) => 0.58 * size * longest + 2 <= side) ?? null;
}

const margins = (l, r, t, b) => Object.fromEntries(Object.entries({ l, r, t, b }).map(([side, size]) => [side, size * unit()]));

function layout(extra) {
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink("--ink"), family: "system-ui, sans-serif", size: 12 * unit() },
    margin: margins(56, 12, 8, 44), legend: { orientation: "h", y: -0.24, x: 0, font: { size: 11 * unit() } }, hovermode: "closest", uirevision: "keep", ...extra,
  };
}

function lines(marks) {
  return {
    shapes: marks.map((mark) => ({
      type: "line", line: { color: ink("--quiet"), width: 1, dash: "dot" },
      ...(mark.axis === "x" ? { x0: mark.at, x1: mark.at, yref: "paper", y0: 0, y1: 1 } : { y0: mark.at, y1: mark.at, xref: "paper", x0: 0, x1: 1 }),
    })),
    annotations: marks.filter((mark) => mark.label).map((mark) => ({
      text: mark.label, showarrow: false, font: { size: 11 * unit(), color: ink("--quiet") },
      ...(mark.axis === "x" ? { x: mark.at, yref: "paper", y: 1, yanchor: "bottom", xanchor: "center" } : { y: mark.at, xref: "paper", x: 1, xanchor: "right", yanchor: "bottom" }),
    })),
  };
}

const drawings = {
  curves(figure, width, seen) {
    const all = (name) => [...figure.series.map((one) => one[name]), figure.marks.filter((mark) => mark.axis === name).map((mark) => mark.at)];
    const extra = { xaxis: axis(figure.x, all("x"), seen.xaxis, fitting(width)), yaxis: axis(figure.y, all("y"), seen.yaxis, ROWS), ...lines(figure.marks), margin: margins(56, 12, figure.marks.some((m) => m.label) ? 22 : 8, 44) };
    // Margins that follow the labels and axes that follow each other would move one another without end.
    if (figure.square) {
      extra.xaxis = { ...extra.xaxis, automargin: false };
      extra.yaxis = { ...extra.yaxis, automargin: false, scaleanchor: "x", scaleratio: 1 };
    }
    // Words, other than lines, are placed by the logarithm where an axis is logarithmic.
    if (figure.x.log) extra.annotations = extra.annotations.map((a) => (a.yref === "paper" ? { ...a, x: Math.log10(a.x) } : a));
    if (figure.y.log) extra.annotations = extra.annotations.map((a) => (a.xref === "paper" ? { ...a, y: Math.log10(a.y) } : a));
    const several = figure.series.filter((one) => one.legend).length > 1;
    return [figure.series.map(trace), layout({ ...extra, showlegend: several })];
  },
  map(figure, width, seen) {
    const z = figure.log ? figure.z.map((row) => row.map((v) => (v === null || v <= 0 ? null : Math.log10(v)))) : figure.z;
    const bar = { title: { text: figure.log ? `log₁₀ ${figure.value}` : figure.value, side: "right" }, thickness: 12, outlinewidth: 0 };
    const base = { x: figure.xs, y: figure.ys, z, colorscale: figure.diverging ? DIVERGING : SCALE, ...(figure.diverging ? { zmid: 0 } : {}), colorbar: bar, hovertemplate: "%{x:.4g}, %{y:.4g}: %{z:.4g}<extra></extra>" };
    const main = figure.contours ? { ...base, type: "contour", ncontours: 18, line: { width: 0.5 } } : { ...base, type: "heatmap" };
    return [[main, ...figure.series.flatMap(ringed)], layout({
      xaxis: { ...axis(figure.x, [figure.xs], seen.xaxis, fitting(width)), fixedrange: Boolean(figure.pick) }, yaxis: { ...axis(figure.y, [figure.ys], seen.yaxis, ROWS), fixedrange: Boolean(figure.pick) },
      margin: margins(60, 8, 8, 44), ...(figure.pick ? { dragmode: false } : {}),
    })];
  },
  matrix(figure, width) {
    const [high, wide] = [figure.values.length, figure.values[0].length];
    const side = Math.min((width - 100 * unit()) / wide, (286 * unit()) / high); // of a cell, in pixels
    const flat = figure.values.flat().filter((v) => v !== null);
    const most = Math.max(1e-12, ...flat.map(Math.abs));
    const texts = figure.values.map((row) => row.map((v) => (v === null ? "" : cell(v))));
    const size = letters(texts, side);
    const known = figure.known;
    const main = {
      type: "heatmap", z: figure.values, colorscale: DIVERGING, zmid: 0, zmin: figure.low ?? -most, zmax: figure.high ?? most, xgap: 1, ygap: 1,
      ...(size ? { text: texts, texttemplate: "%{text}", textfont: { size } } : {}),
      colorbar: { thickness: 12, outlinewidth: 0 }, hovertemplate: "%{z:.4g}<extra></extra>",
    };
    const rings = known ? [{
      type: "scatter", mode: "markers", x: known.flatMap((row) => row.map((_, j) => j).filter((j) => row[j])), y: known.flatMap((row, i) => row.filter(Boolean).map(() => i)),
      marker: { symbol: "square-open", size: Math.max(5, Math.min(0.8 * side, 40)), color: "#111", line: { width: 1.5 } }, hoverinfo: "skip", showlegend: false,
    }] : [];
    const plain = { showgrid: false, zeroline: false, automargin: true, ticks: "" };
    const names = (count, given) => {
      const step = Math.ceil(count / 12);
      const at = Array.from({ length: Math.ceil(count / step) }, (_, i) => i * step);
      return { tickvals: at, ticktext: at.map((i) => given[i] ?? String(i + 1)) };
    };
    return [[main, ...rings], layout({
      xaxis: { ...plain, ...names(wide, figure.columns), side: "top", range: [-0.5, wide - 0.5], constrain: "domain" },
      yaxis: { ...plain, ...names(high, figure.rows), range: [high - 0.5, -0.5], scaleanchor: "x", constrain: "domain" },
      margin: { l: 30, r: 8, t: 26, b: 8 },
    })];
  },
  graph(figure) {
    const part = (node) => colour(node.part);
    const edges = {
      type: "scatter", mode: "lines", hoverinfo: "skip", showlegend: false, line: { color: ink("--quiet"), width: 1.2 },
      x: figure.edges.flatMap(([a, b]) => [figure.nodes[a].x, figure.nodes[b].x, null]), y: figure.edges.flatMap(([a, b]) => [figure.nodes[a].y, figure.nodes[b].y, null]),
    };
    const nodes = {
      type: "scatter", mode: "markers+text", showlegend: false, x: figure.nodes.map((n) => n.x), y: figure.nodes.map((n) => n.y), text: figure.nodes.map((n) => n.label),
      textposition: "middle center", textfont: { size: 11, color: dark() ? "#111" : "#fff" }, hovertemplate: "%{text}<extra></extra>",
      marker: { opacity: 1, size: figure.nodes.map((n) => (n.strong ? 34 : 26)), color: figure.nodes.map(part), line: { width: figure.nodes.map((n) => (n.strong ? 3 : 0)), color: ink("--ink") } },
    };
    const none = { visible: false };
    return [[edges, nodes], layout({ xaxis: none, yaxis: none, margin: { l: 8, r: 8, t: 8, b: 8 } })];
  },
};

function table(figure) {
  return element("div", { class: "scroll", tabindex: "0" }, element("table", {},
    element("thead", {}, element("tr", {}, ...figure.columns.map((text) => element("th", { scope: "col" }, text)))),
    element("tbody", {}, ...figure.rows.map((row) => element("tr", {}, ...row.map((text) => element("td", {}, text)))))));
}

// The numbers of a picture as CSV.
function csv(figure) {
  const quote = (text) => (/[",\n]/.test(String(text)) ? `"${String(text).replaceAll('"', '""')}"` : String(text ?? ""));
  const long = (series) => series.flatMap((one) => one.x.map((x, i) => [one.name, x, one.y[i]]));
  let rows = [];
  if (figure.type === "curves") rows = [["series", figure.x.label, figure.y.label], ...long(figure.series)];
  if (figure.type === "map") rows = [[`${figure.y.label} / ${figure.x.label}`, ...figure.xs], ...figure.z.map((row, i) => [figure.ys[i], ...row])];
  if (figure.type === "matrix") rows = [["", ...(figure.columns.length ? figure.columns : figure.values[0].map((_, j) => j + 1))], ...figure.values.map((row, i) => [figure.rows[i] ?? i + 1, ...row])];
  if (figure.type === "graph") rows = [["from", "to"], ...figure.edges.map(([a, b]) => [figure.nodes[a].label, figure.nodes[b].label])];
  if (figure.type === "table") rows = [figure.columns, ...figure.rows];
  return rows.map((row) => row.map(quote).join(",")).join("\n") + "\n";
}

// A picture on the page, which can be drawn again with other data. In maps that set two parameters, `pick` has them:
// `get(name)`, `set(values)`, and `field(name)` with title and limits.
class Card {
  constructor(prefix, pick) {
    this.pick = pick;
    this.seen = {}; // powers of ten that are looked at, by axis, where the picture is enlarged
    this.title = element("h2");
    this.body = element("div", { class: "plot", role: "img" });
    this.caption = element("figcaption");
    const save = element("button", { type: "button", title: "Download the picture (SVG)", onclick: () => this.picture(prefix) }, "SVG");
    const data = element("button", { type: "button", title: "Download the data (CSV)", onclick: () => download(`${prefix}-${this.figure.name}.csv`, csv(this.figure), "text/csv") }, "CSV");
    this.save = save;
    this.node = element("figure", {}, element("header", {}, this.title, element("div", { class: "row" }, save, data)), this.body, this.caption);
  }

  async picture(prefix) {
    const url = await window.Plotly.toImage(this.body, { format: "svg", width: 900, height: 600 });
    download(`${prefix}-${this.figure.name}.svg`, decodeURIComponent(url.slice(url.indexOf(",") + 1)), "image/svg+xml");
  }

  draw(figure) {
    this.figure = figure;
    this.title.textContent = figure.title;
    this.caption.textContent = figure.caption;
    this.node.dataset.figure = figure.name;
    if (figure.type === "table") {
      this.save.hidden = true;
      const fresh = table(figure);
      this.body.replaceWith(fresh);
      this.body = fresh;
      return;
    }
    const picks = figure.type === "map" && figure.pick;
    this.body.setAttribute("aria-label", `${figure.title}. ${figure.caption}${picks ? " Arrow keys move the point, with Shift in large steps." : ""}`);
    const [data, shape] = drawings[figure.type](figure, this.body.clientWidth, this.seen);
    const first = !this.body.data;
    window.Plotly.react(this.body, data, shape, { displayModeBar: false, responsive: true });
    if (first) this.body.on("plotly_relayout", (change) => this.enlarged(change));
    if (picks && !this.picking) this.enablePick();
  }

  // Labels of logarithmic axes follow what is looked at.
  enlarged(change) {
    const before = JSON.stringify(this.seen);
    for (const name of ["xaxis", "yaxis"]) {
      if (change[`${name}.autorange`]) delete this.seen[name];
      else if (`${name}.range[0]` in change) this.seen[name] = change[`${name}.range[1]`] - change[`${name}.range[0]`];
    }
    if (JSON.stringify(this.seen) !== before) this.draw(this.figure);
  }

  // A value of a parameter within its limits, with few digits.
  within(name, value) {
    const { minimum, maximum } = this.pick.field(name);
    return Math.min(maximum, Math.max(minimum, Number(value.toPrecision(3))));
  }

  // Press and drag in a map, or move the point by keys: the place sets two parameters.
  enablePick() {
    this.picking = true;
    let down = false;
    const choose = (event, mayBegin) => {
      const { xaxis, yaxis } = this.body._fullLayout;
      const box = this.body.getBoundingClientRect();
      const [x, y] = [event.clientX - box.left - xaxis._offset, event.clientY - box.top - yaxis._offset];
      if (mayBegin && (x < 0 || y < 0 || x > xaxis._length || y > yaxis._length)) return false;
      const value = (name, axis, pixel) => this.within(name, Number(axis.p2d(Math.min(Math.max(pixel, 0), axis._length))));
      const [first, second] = this.figure.pick;
      this.pick.set({ [first]: value(first, xaxis, x), [second]: value(second, yaxis, y) });
      return true;
    };
    this.body.style.cursor = "crosshair";
    this.body.style.touchAction = "none";
    this.body.tabIndex = 0;
    this.body.setAttribute("role", "application");
    this.body.setAttribute("aria-roledescription", "map");
    this.body.addEventListener("pointerdown", (event) => {
      down = event.button === 0 && choose(event, true);
      if (down) this.body.setPointerCapture(event.pointerId);
    });
    this.body.addEventListener("pointermove", (event) => { if (down) choose(event, false); });
    for (const end of ["pointerup", "pointercancel"]) this.body.addEventListener(end, () => { down = false; });
    this.body.addEventListener("keydown", (event) => this.nudge(event));
  }

  nudge(event) {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (!step || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const part = event.shiftKey ? 0.1 : 0.02;
    const { pick: [first, second], x, y, xs, ys } = this.figure;
    const moved = (name, { log }, places, by) => {
      const [to, back] = log ? [Math.log10, (v) => 10 ** v] : [Number, Number];
      const [low, high] = [to(places[0]), to(places.at(-1))];
      return this.within(name, back(Math.min(high, Math.max(low, to(this.pick.get(name)) + by * part * (high - low)))));
    };
    const values = step[0] ? { [first]: moved(first, x, xs, step[0]) } : { [second]: moved(second, y, ys, step[1]) };
    this.pick.set(values);
    announce([first, second].map((name) => `${this.pick.field(name).title} ${short(this.pick.get(name))}`).join(", "));
  }

  clear() {
    if (this.figure && this.figure.type !== "table") window.Plotly.purge(this.body);
    this.node.remove();
  }
}

export class Figures {
  constructor(host, prefix, pick) {
    Object.assign(this, { host, prefix, pick, cards: new Map() });
  }

  draw(figures) {
    const names = new Set(figures.map((figure) => `${figure.type}:${figure.name}`));
    for (const [name, card] of this.cards) if (!names.has(name)) { card.clear(); this.cards.delete(name); }
    figures.forEach((figure, place) => {
      const name = `${figure.type}:${figure.name}`;
      if (!this.cards.has(name)) this.cards.set(name, new Card(this.prefix, this.pick));
      const { node } = this.cards.get(name);
      if (this.host.children[place] !== node) this.host.insertBefore(node, this.host.children[place] ?? null);
      this.cards.get(name).draw(figure);
    });
  }

  // The pictures have another width.
  fit() { for (const { body, figure } of this.cards.values()) if (figure.type !== "table") window.Plotly.Plots.resize(body); }

  again() { for (const card of this.cards.values()) if (card.figure) card.draw(card.figure); }

  clear() { for (const card of this.cards.values()) card.clear(); this.cards.clear(); }
}
