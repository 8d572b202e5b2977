// Controls of a view, made from the JSON schema of its parameters: limits stand there, once.

import { grid, matrix } from "./cells.js";
import { element, short } from "./dom.js";
import { beside, Frame, NumberField, rules, tick } from "./fields.js";

// A slider and a field for the number itself. Sliders of magnitudes are logarithmic.
// The slider counts ticks from the low end; its last place is the high end, even where that lies between two ticks.
function slider(name, field, set) {
  const { minimum: low, maximum: high, log } = rules(field);
  const whole = field.type === "integer";
  const step = tick(field);
  const to = log ? Math.log10 : (v) => v;
  const digits = Math.max(0, 3 - Math.floor(Math.log10(step)));
  const back = log ? (v) => Number((10 ** v).toPrecision(3)) : (v) => (whole ? Math.round(v) : Number(v.toFixed(digits)));
  const last = Math.ceil((to(high) - to(low)) / step - 1e-9);
  const value = (place) => (place >= last ? high : Math.max(low, back(to(low) + place * step)));
  const place = (v) => (v >= high ? last : Math.round((to(Math.max(v, low)) - to(low)) / step));

  const frame = new Frame(field);
  const range = element("input", {
    type: "range", id: frame.id, min: "0", max: String(last), step: "1",
    oninput: () => { const found = value(Number(range.value)); show(found, false); set({ [name]: found }); },
  });
  const number = new NumberField(frame, field.title, rules(field), `${field.title}, number`, (found) => { show(found); set({ [name]: found }); });
  frame.fill([range, number.input], element("label", { for: frame.id }, field.title, number.input), range);
  function show(found, moveSlider = true) {
    number.show(found);
    if (moveSlider) range.value = String(place(found));
    range.setAttribute("aria-valuetext", short(found));
  }
  return { frame, show, tell: (found) => short(found) };
}

function seed(name, field, set) {
  const { minimum: low, maximum: high } = rules(field);
  const frame = new Frame(field);
  const number = new NumberField(frame, field.title, rules(field), null, (found) => set({ [name]: found }));
  const draw = () => { const found = low + Math.floor(Math.random() * (high - low + 1)); number.show(found); set({ [name]: found }); };
  const other = element("button", { type: "button", onclick: draw }, "Draw another");
  number.input.id = frame.id;
  frame.fill([number.input], element("label", { for: frame.id }, field.title), element("div", { class: "row" }, number.input, other));
  return { frame, show: (value) => number.show(value) };
}

function choice(name, field, set) {
  const frame = new Frame(field);
  const select = element("select", { id: frame.id, onchange: () => set({ [name]: select.value }) },
    ...Object.entries(field.options).map(([value, text]) => element("option", { value }, text)));
  frame.fill([select], element("label", { for: frame.id }, field.title), select);
  return { frame, show: (value) => { select.value = String(value); }, tell: (value) => field.options[value] };
}

function toggle(name, field, set) {
  const frame = new Frame(field);
  const box = element("input", { type: "checkbox", id: frame.id, onchange: () => set({ [name]: box.checked }) });
  frame.fill([box], element("label", { for: frame.id }, field.title, box));
  return { frame, show: (value) => { box.checked = Boolean(value); }, tell: (value) => (value ? "yes" : "no") };
}

const KINDS = { slider, seed, choice, switch: toggle, grid, matrix };

// Pairs of values of which the first must stay below the second.
function orders(fields) {
  const pairs = Object.entries(fields).flatMap(([name, { below, above }]) => [[name, below], [above, name]]);
  return pairs.filter(([lower, upper]) => lower in fields && upper in fields);
}

// When a control matters, in words.
function when(fields, only) {
  const word = (other, value) => (typeof value === "boolean" ? (value ? "yes" : "no") : fields[other].options?.[value] ?? value);
  const parts = Object.entries(only).map(([other, values]) => `${fields[other].title}: ${values.map((value) => word(other, value)).join(" or ")}`);
  return `Only for ${parts.join("; ")}`;
}

// All controls of a schema. `set(values)` is called by the user's hand; `show(values)` follows other changes.
export function controls(schema, set) {
  const fields = schema.properties ?? {};
  const made = new Map();
  const family = [];
  let now = {};
  // What is moved past its neighbour pushes it along, a tick ahead, until that one stands at its own end.
  const ordered = (changes) => {
    const found = { ...changes };
    for (const [lower, upper] of orders(fields)) {
      const at = (name) => found[name] ?? now[name];
      if (at(lower) < at(upper)) continue;
      if (lower in changes) {
        found[upper] = Math.min(beside(fields[upper], at(lower), 1), rules(fields[upper]).maximum);
        if (at(lower) >= at(upper)) found[lower] = beside(fields[upper], at(upper), -1);
      } else {
        found[lower] = Math.max(beside(fields[lower], at(upper), -1), rules(fields[lower]).minimum);
        if (at(lower) >= at(upper)) found[upper] = beside(fields[lower], at(lower), 1);
      }
    }
    return found;
  };
  const change = (changes) => {
    const found = ordered(changes);
    now = { ...now, ...found };
    for (const [name, value] of Object.entries(found)) if (value !== changes[name]) made.get(name)?.show(value);
    refresh();
    set(found);
  };
  const matters = (name) => Object.entries(fields[name].only ?? {}).every(([other, values]) => values.includes(now[other]));
  const refresh = () => made.forEach((one, name) => {
    one.refresh?.();
    if (fields[name].only) one.frame.bar(!matters(name));
  });
  for (const [name, field] of Object.entries(fields)) {
    const kind = KINDS[field.control];
    if (!kind) continue;
    const one = kind(name, field, change, family, (other) => now[other]);
    if (field.only) one.frame.limit(when(fields, field.only));
    made.set(name, one);
  }
  return {
    nodes: [...made.values()].map((one) => one.frame.node),
    show: (values) => { now = { ...values }; made.forEach((one, name) => one.show(values[name])); refresh(); },
    // Mark the controls that a message of the server, at that place in the page, is about.
    wrong: (names, message) => made.forEach((one, name) => one.frame.blame(names.includes(name) ? message : null)),
    // The values in a line.
    tell: (values) => [...made].filter(([, one]) => one.tell && !one.frame.off).map(([name, one]) => `${fields[name].title} ${one.tell(values[name])}`).join(" · "),
  };
}
