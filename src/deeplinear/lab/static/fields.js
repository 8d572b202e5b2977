// What controls are made of: a frame with title, remark and complaint, and fields for numbers that refuse what is none.

import { element } from "./dom.js";

let serial = 0;

// The rules of a field; those of numbers may stand inside of `anyOf`.
export const rules = (field) => ({ ...(field.anyOf?.find((one) => one.type !== "null") ?? {}), ...field });

// How far a slider moves at a time: in powers of ten where it is logarithmic.
export function tick(field) {
  const { minimum, maximum, log, step } = rules(field);
  return log ? 0.01 : step ?? (maximum - minimum) / 200;
}

// The value so many ticks of a slider away.
export function beside(field, value, ticks) {
  const by = ticks * tick(field);
  return rules(field).log ? Number((10 ** (Math.log10(value) + by)).toPrecision(3)) : Number((value + by).toPrecision(10));
}

// The number that a text is: with a point, or with a comma where that can only be the decimal one.
function number(text) {
  const plain = text.trim().replace("−", "-").replace(/^([+-]?\d+),(\d+)$/, "$1.$2");
  return /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(plain) ? Number(plain) : NaN;
}

// What is wrong with a text as a number within limits, as a sentence; nothing if it is right.
function complaint(title, text, { low, high, whole }) {
  const value = number(text);
  if (/^[+-]?[1-9]\d*,\d{3}$/.test(text.trim())) return `${title} must be a number without a comma: write ${text.replace(",", "")} or ${text.replace(",", ".")} instead of ${text}. The last one stays in use.`;
  if (Number.isNaN(value)) return `${title} must be a number. The last one stays in use.`;
  if (whole && !Number.isInteger(value)) return `${title} must be a whole number, but is ${text}. The last one stays in use.`;
  if (value < low || value > high) return `${title} must be between ${low} and ${high}, but is ${text}. The last one stays in use.`;
  return "";
}

// A value for a field, whatever it was: as it is where the field takes it, otherwise the next best, with a word about it.
export function fitted(field, value) {
  const { minimum, maximum, type, title, options } = rules(field);
  const usual = { value: field.default, word: `${title}: not readable, now as at first.` };
  if (options) return Object.hasOwn(options, String(value)) ? { value } : { value: field.default, word: `${title}: no such choice here, now “${options[field.default]}”.` };
  if (type === "number" || type === "integer") {
    if (typeof value !== "number") return usual;
    if (value < minimum) return { value: minimum, word: `${title}: too small for this view, now ${minimum}.` };
    if (value > maximum) return { value: maximum, word: `${title}: too large for this view, now ${maximum}.` };
    const whole = Math.round(value);
    return type === "integer" && whole !== value ? { value: whole, word: `${title}: must be a whole number, now ${whole}.` } : { value };
  }
  if (type !== "array") return typeof value === type ? { value } : usual;
  const kind = typeof field.default[0][0];
  const right = (one) => typeof one === kind && (kind !== "number" || Math.abs(one) <= field.limit);
  const wide = value?.[0]?.length;
  if (!Array.isArray(value) || !wide || !value.every((row) => Array.isArray(row) && row.length === wide && row.every(right))) return usual;
  const most = field.maxItems ?? Infinity;
  if (value.length <= most && wide <= most) return { value };
  return { value: value.slice(0, most).map((row) => row.slice(0, most)), word: `${title}: too large for this view, now cut to ${most} a side.` };
}

export class Frame {
  constructor(field) {
    this.id = `c${serial++}`;
    this.about = field.description ? element("p", { class: "about", id: `${this.id}-about` }, field.description) : null;
    this.fault = element("p", { class: "fault", id: `${this.id}-fault`, role: "alert", hidden: true });
    this.only = null;
    this.off = false;
    this.faulty = null;
    this.blamed = null;
  }

  // This control matters only sometimes: a word about when stands below it, and at other times it is barred.
  limit(word) {
    this.only = element("p", { class: "only", id: `${this.id}-only` }, word);
    this.node.append(this.only);
    this.mark();
  }

  bar(off) {
    this.off = off;
    this.node.classList.toggle("off", off);
    for (const part of this.node.querySelectorAll("input, select, button")) part.disabled = off;
  }

  // `inputs` are those that a complaint is about.
  fill(inputs, ...content) {
    this.inputs = inputs;
    this.node = element("div", { class: "control" }, ...content, this.fault, this.about);
    this.mark();
  }

  // Say what is wrong with one of the inputs, or, without a sentence, that nothing is.
  refuse(sentence, input = null) {
    if (this.fault.textContent === sentence && this.faulty === input) return;
    this.faulty = input;
    this.fault.textContent = sentence;
    this.fault.hidden = !sentence;
    this.mark();
  }

  // Point at a message elsewhere in the page, or no longer.
  blame(message) {
    if (this.blamed === message) return;
    this.blamed = message;
    this.mark();
  }

  mark() {
    this.node.classList.toggle("wrong", this.blamed !== null);
    for (const input of this.inputs) {
      const faulty = input === this.faulty;
      const wrong = faulty || this.blamed !== null;
      const told = [this.about?.id, this.only?.id, faulty ? this.fault.id : null, this.blamed].filter(Boolean).join(" ");
      if (told) input.setAttribute("aria-describedby", told);
      else input.removeAttribute("aria-describedby");
      if (input.matches("input, select")) input.setAttribute("aria-invalid", String(wrong));
    }
  }
}

// A field for a number. `take(value)` is called with right ones only; otherwise the frame says what is wrong.
export class NumberField {
  constructor(frame, title, { minimum: low, maximum: high, type }, label, take) {
    const whole = type === "integer";
    this.frame = frame;
    this.input = element("input", {
      type: "text", class: "number", inputmode: low < 0 ? "text" : whole ? "numeric" : "decimal", autocomplete: "off", spellcheck: "false", "aria-label": label,
      oninput: () => { if (frame.faulty === this.input && !this.complaint()) frame.refuse(""); },
      onchange: () => {
        const sentence = this.complaint();
        frame.refuse(sentence, sentence ? this.input : null);
        if (!sentence) take(number(this.input.value));
      },
      onkeydown: (event) => {
        const way = { ArrowUp: 1, ArrowDown: -1 }[event.key];
        if (!way || this.complaint()) return;
        event.preventDefault();
        const next = Number((number(this.input.value) + way * this.step).toPrecision(10));
        this.show(Math.min(high, Math.max(low, next)));
        take(number(this.input.value));
      },
    });
    this.step = whole ? 1 : 0.1;
    this.complaint = () => complaint(title, this.input.value, { low, high, whole });
  }

  show(value) {
    this.input.value = String(value);
    this.frame.refuse("");
  }
}
