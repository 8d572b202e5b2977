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

// What is wrong with a text as a number within limits, as a sentence; nothing if it is right.
export function complaint(title, text, { low, high, whole }) {
  const value = Number(text);
  if (text.trim() === "" || !Number.isFinite(value)) return `${title} must be a number. The last one stays in use.`;
  if (whole && !Number.isInteger(value)) return `${title} must be a whole number, but is ${text}. The last one stays in use.`;
  if (value < low || value > high) return `${title} must be between ${low} and ${high}, but is ${text}. The last one stays in use.`;
  return "";
}

export class Frame {
  constructor(field) {
    this.id = `c${serial++}`;
    this.about = field.description ? element("p", { class: "about", id: `${this.id}-about` }, field.description) : null;
    this.fault = element("p", { class: "fault", id: `${this.id}-fault`, role: "alert", hidden: true });
    this.faulty = null;
    this.blamed = null;
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
      const told = [this.about?.id, faulty ? this.fault.id : null, this.blamed].filter(Boolean).join(" ");
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
      type: "number", min: String(low), max: String(high), step: whole ? "1" : "any", "aria-label": label,
      oninput: () => { if (frame.faulty === this.input && !this.complaint()) frame.refuse(""); },
      onchange: () => {
        const sentence = this.complaint();
        frame.refuse(sentence, sentence ? this.input : null);
        if (!sentence) take(Number(this.input.value));
      },
    });
    this.complaint = () => complaint(title, this.input.value, { low, high, whole });
  }

  show(value) {
    this.input.value = String(value);
    this.frame.refuse("");
  }
}
