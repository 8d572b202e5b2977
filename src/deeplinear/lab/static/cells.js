// Controls of many cells: masks to paint, and small matrices of numbers.

import { element, short } from "./dom.js";
import { Frame, NumberField } from "./fields.js";

// Cells to paint: click or drag, arrow keys and space.
// Grids of one view change their size together. Where `square` names values of other parameters, as in
// {"start": ["alpha-m"]}, there must be as many rows as columns under these.
export function grid(name, field, set, family, get) {
  let cells = [];
  const host = element("div", { class: "cells", role: "group", "aria-label": field.title });
  let brush = null;
  const change = (i, j, value) => {
    if (cells[i][j] === value) return;
    cells = cells.map((row, k) => (k === i ? row.map((cell, l) => (l === j ? value : cell)) : row));
    mark(i, j);
    set({ [name]: cells });
  };
  const at = (i, j) => host.children[i * cells[0].length + j];
  const mark = (i, j) => {
    const button = at(i, j);
    button.setAttribute("aria-pressed", String(cells[i][j]));
    button.setAttribute("aria-label", `row ${i + 1}, column ${j + 1}: ${cells[i][j] ? "known" : "not known"}`);
  };
  const place = (node) => (node?.dataset?.i === undefined || node.parentElement !== host ? null : [Number(node.dataset.i), Number(node.dataset.j)]);
  // One cell is reached by the tabulator, the others from there by the arrows.
  const reach = (i, j) => { for (const cell of host.children) cell.tabIndex = cell === at(i, j) ? 0 : -1; };
  host.addEventListener("focusin", (event) => { const where = place(event.target); if (where) reach(...where); });
  host.addEventListener("pointerdown", (event) => {
    const where = place(event.target);
    if (!where) return;
    event.preventDefault();
    event.target.focus();
    brush = !cells[where[0]][where[1]];
    change(...where, brush);
    for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => { brush = null; }, { once: true });
  });
  host.addEventListener("pointermove", (event) => {
    if (brush === null) return;
    const where = place(document.elementFromPoint(event.clientX, event.clientY));
    if (where) change(...where, brush);
  });
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
      reach(0, 0);
    }
    value.forEach((row, i) => row.forEach((_, j) => mark(i, j)));
  }
  const fill = (rule) => { const next = cells.map((row, i) => row.map((_, j) => rule(i, j))); show(next); set({ [name]: next }); };
  const most = field.maxItems ?? 8;
  // The grid with other sides. What is added is not known, other than a new corner of a square.
  const resized = (down, right) => {
    const [high, wide] = [cells.length + down, cells[0].length + right].map((side) => Math.min(most, Math.max(1, side)));
    const corner = (i, j) => high === wide && i === j && i >= cells.length && j >= cells[0].length;
    show(Array.from({ length: high }, (_, i) => Array.from({ length: wide }, (_, j) => cells[i]?.[j] ?? (first && corner(i, j)))));
    return { [name]: cells };
  };
  const first = family.length === 0;
  family.push(resized);
  const size = (text, title, down, right) => element("button", {
    type: "button", title, "aria-label": title,
    onclick: (event) => { if (event.target.getAttribute("aria-disabled") !== "true") set(Object.assign({}, ...family.map((one) => one(down, right)))); },
  }, text);
  const uneven = [size("− row", "Remove a row", -1, 0), size("+ row", "Add a row", 1, 0), size("− column", "Remove a column", 0, -1), size("+ column", "Add a column", 0, 1)];
  const titles = uneven.map((button) => button.title);
  const sizes = element("div", { class: "row" }, size("Smaller", "Remove a row and a column", -1, -1), size("Larger", "Add a row and a column", 1, 1), ...uneven);
  const refresh = () => {
    const square = Object.entries(field.square ?? {}).find(([other, values]) => values.includes(get(other)));
    uneven.forEach((button, i) => {
      button.setAttribute("aria-disabled", String(Boolean(square)));
      button.title = square ? `${titles[i]}: not with this start, which needs as many rows as columns` : titles[i];
    });
  };
  const brushes = element("div", { class: "row" },
    element("button", { type: "button", onclick: () => fill(() => true) }, "All"),
    element("button", { type: "button", onclick: () => fill((i, j) => i === j) }, "Diagonal"),
    element("button", { type: "button", onclick: () => fill(() => Math.random() < 0.5) }, "Random"));
  const frame = new Frame(field);
  const group = element("fieldset", {}, element("legend", {}, field.title), host, brushes, sizes);
  frame.fill([group], group);
  return { frame, show, refresh, tell: (value) => `${value.length} × ${value[0].length}` };
}

// A small matrix of numbers.
export function matrix(name, field, set) {
  const host = element("div", { class: "cells" });
  const frame = new Frame(field);
  frame.fill([], element("fieldset", {}, element("legend", {}, field.title), host));
  const limits = { minimum: -field.limit, maximum: field.limit, type: "number" };
  let values = [];
  let numbers = [];
  const take = (i, j, value) => {
    values = values.map((row, k) => (k === i ? row.map((one, l) => (l === j ? value : one)) : row));
    set({ [name]: values });
    const other = numbers.find((one) => one.complaint());
    if (other) frame.refuse(other.complaint(), other.input);
  };
  function show(next) {
    values = next;
    numbers = next.flatMap((row, i) => row.map((value, j) => {
      const title = `${field.title}, row ${i + 1}, column ${j + 1}`;
      const number = new NumberField(frame, title, limits, title, (found) => take(i, j, found));
      number.input.value = short(value);
      return number;
    }));
    host.style.gridTemplateColumns = `repeat(${next[0].length}, max-content)`;
    host.replaceChildren(...numbers.map((one) => one.input));
    frame.inputs = numbers.map((one) => one.input);
    frame.refuse("");
    frame.mark();
  }
  const entries = (value) => value.map((row) => row.map(short).join(" ")).join("; ");
  return { frame, show, tell: (value) => (value.flat().length <= 4 ? entries(value) : `${value.length} × ${value[0].length}`) };
}
