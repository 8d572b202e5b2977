// Controls of a view, made from the JSON schema of its parameters: limits stand there, once.

import { element, short } from "./dom.js";

let serial = 0;

// The rules of a field; those of numbers may stand inside of `anyOf`.
const rules = (field) => ({ ...(field.anyOf?.find((one) => one.type !== "null") ?? {}), ...field });

function frame(id, field, input, value) {
  const about = field.description ? element("p", { class: "about", id: `${id}-about` }, field.description) : null;
  return element("div", { class: "control" }, element("label", { for: id }, field.title, value), input, about);
}

// A slider and a field for the number itself. Sliders of magnitudes are logarithmic.
function slider(name, field, set) {
  const id = `c${serial++}`;
  const { minimum: low, maximum: high, log, step } = rules(field);
  const whole = field.type === "integer";
  const to = log ? (v) => Math.log10(v) : (v) => v;
  const tick = log ? 0.01 : step ?? (high - low) / 200;
  const back = log ? (v) => Number((10 ** v).toPrecision(3)) : (v) => (whole ? Math.round(v) : Number(Number(v).toPrecision(6)));
  const clamp = (v) => Math.min(high, Math.max(low, v));
  const about = field.description ? `${id}-about` : null;
  const range = element("input", {
    type: "range", id, min: String(to(low)), max: String(to(high)), step: String(tick), "aria-describedby": about,
    oninput: () => { const value = clamp(back(Number(range.value))); show(value, false); set(name, value); },
  });
  const number = element("input", {
    type: "number", min: String(low), max: String(high), step: whole ? "1" : "any", "aria-label": `${field.title}, number`,
    onchange: () => { range.value = String(to(clamp(Number(number.value)))); set(name, whole ? Math.trunc(Number(number.value)) : Number(number.value)); },
  });
  function show(value, moveSlider = true) {
    number.value = String(value);
    if (moveSlider) range.value = String(to(clamp(value)));
    range.setAttribute("aria-valuetext", short(value));
  }
  return { node: frame(id, field, range, number), show };
}

function seed(name, field, set) {
  const id = `c${serial++}`;
  const { minimum: low, maximum: high } = rules(field);
  const number = element("input", { type: "number", id, min: String(low), max: String(high), step: "1", onchange: () => set(name, Math.trunc(Number(number.value))) });
  const other = element("button", { type: "button", onclick: () => { number.value = String(low + Math.floor(Math.random() * (high - low + 1))); set(name, Number(number.value)); } }, "Draw another");
  return { node: frame(id, field, element("div", { class: "row" }, number, other), null), show: (value) => { number.value = String(value); } };
}

function choice(name, field, set) {
  const id = `c${serial++}`;
  const select = element("select", { id, onchange: () => set(name, select.value) },
    ...Object.entries(field.options).map(([value, text]) => element("option", { value }, text)));
  return { node: frame(id, field, select, null), show: (value) => { select.value = String(value); } };
}

function toggle(name, field, set) {
  const id = `c${serial++}`;
  const box = element("input", { type: "checkbox", id, onchange: () => set(name, box.checked) });
  return { node: frame(id, field, null, box), show: (value) => { box.checked = Boolean(value); } };
}

// Cells to paint: click or drag, arrow keys and space.
// Grids of one view change their size together.
function grid(name, field, set, family) {
  let cells = [];
  const host = element("div", { class: "cells", role: "group", "aria-label": field.title });
  let brush = null;
  const change = (i, j, value) => {
    if (cells[i][j] === value) return;
    cells = cells.map((row, k) => (k === i ? row.map((cell, l) => (l === j ? value : cell)) : row));
    mark(i, j);
    set(name, cells);
  };
  const at = (i, j) => host.children[i * cells[0].length + j];
  const mark = (i, j) => {
    const button = at(i, j);
    button.setAttribute("aria-pressed", String(cells[i][j]));
    button.setAttribute("aria-label", `row ${i + 1}, column ${j + 1}: ${cells[i][j] ? "known" : "not known"}`);
  };
  const place = (node) => (node?.dataset?.i === undefined || node.parentElement !== host ? null : [Number(node.dataset.i), Number(node.dataset.j)]);
  host.addEventListener("pointerdown", (event) => {
    const where = place(event.target);
    if (!where) return;
    event.preventDefault();
    event.target.focus();
    brush = !cells[where[0]][where[1]];
    change(...where, brush);
  });
  host.addEventListener("pointermove", (event) => {
    if (brush === null) return;
    const where = place(document.elementFromPoint(event.clientX, event.clientY));
    if (where) change(...where, brush);
  });
  addEventListener("pointerup", () => { brush = null; });
  host.addEventListener("keydown", (event) => {
    const where = place(event.target);
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (where && step) {
      const [i, j] = [where[0] + step[0], where[1] + step[1]];
      if (i >= 0 && j >= 0 && i < cells.length && j < cells[0].length) at(i, j).focus();
      event.preventDefault();
    } else if (where && (event.key === " " || event.key === "Enter")) {
      change(...where, !cells[where[0]][where[1]]);
      event.preventDefault();
    }
  });
  function show(value) {
    const same = cells.length === value.length && cells[0]?.length === value[0].length;
    cells = value;
    host.style.gridTemplateColumns = `repeat(${value[0].length}, max-content)`;
    host.classList.toggle("small", value[0].length > 12);
    if (!same) {
      host.replaceChildren(...value.flatMap((row, i) => row.map((_, j) => element("button", { type: "button", "data-i": String(i), "data-j": String(j) }))));
    }
    value.forEach((row, i) => row.forEach((_, j) => mark(i, j)));
  }
  const fill = (rule) => { const next = cells.map((row, i) => row.map((_, j) => rule(i, j))); show(next); set(name, next); };
  const most = field.maxItems ?? 8;
  const resize = (down, right) => {
    const high = Math.min(most, Math.max(1, cells.length + down));
    const wide = Math.min(most, Math.max(1, cells[0].length + right));
    const next = Array.from({ length: high }, (_, i) => Array.from({ length: wide }, (_, j) => cells[i]?.[j] ?? false));
    show(next);
    set(name, next);
  };
  family.push(resize);
  const size = (text, title, down, right) => element("button", { type: "button", title, "aria-label": title, onclick: () => family.forEach((one) => one(down, right)) }, text);
  const sizes = element("div", { class: "row" }, size("− row", "Remove a row", -1, 0), size("+ row", "Add a row", 1, 0), size("− column", "Remove a column", 0, -1), size("+ column", "Add a column", 0, 1));
  const brushes = element("div", { class: "row" },
    element("button", { type: "button", onclick: () => fill(() => true) }, "All"),
    element("button", { type: "button", onclick: () => fill((i, j) => i === j) }, "Diagonal"),
    element("button", { type: "button", onclick: () => fill(() => Math.random() < 0.5) }, "Random"));
  const about = field.description ? element("p", { class: "about" }, field.description) : null;
  return { node: element("div", { class: "control" }, element("fieldset", {}, element("legend", {}, field.title), host, brushes, sizes, about)), show };
}

// A small matrix of numbers.
function matrix(name, field, set) {
  let values = [];
  const host = element("div", { class: "cells" });
  function show(next) {
    values = next;
    host.style.gridTemplateColumns = `repeat(${next[0].length}, max-content)`;
    host.replaceChildren(...next.flatMap((row, i) => row.map((value, j) => {
      const input = element("input", {
        type: "number", step: "0.1", min: String(-field.limit), max: String(field.limit), "aria-label": `${field.title}, row ${i + 1}, column ${j + 1}`,
        onchange: () => { values = values.map((one, k) => (k === i ? one.map((v, l) => (l === j ? Number(input.value) : v)) : one)); set(name, values); },
      });
      input.value = short(value);
      return input;
    })));
  }
  const about = field.description ? element("p", { class: "about" }, field.description) : null;
  return { node: element("div", { class: "control" }, element("fieldset", {}, element("legend", {}, field.title), host, about)), show };
}

const KINDS = { slider, seed, choice, switch: toggle, grid, matrix };

// All controls of a schema. `set(name, value)` is called by the user's hand; `show(values)` follows other changes.
export function controls(schema, set) {
  const made = new Map();
  const family = [];
  for (const [name, field] of Object.entries(schema.properties ?? {})) {
    const kind = KINDS[field.control];
    if (kind) made.set(name, kind(name, field, set, family));
  }
  return {
    nodes: [...made.values()].map((one) => one.node),
    show: (values) => made.forEach((one, name) => one.show(values[name])),
    wrong: (fields) => made.forEach((one, name) => one.node.classList.toggle("wrong", fields.includes(name))),
  };
}
