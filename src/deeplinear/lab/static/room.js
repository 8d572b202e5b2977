// A room on the page: story, presets, controls, and the view that is looked at.

import { Failure, follow, get, post, remove } from "./api.js";
import { controls } from "./controls.js";
import { announce, copy, dialog, element, remembered, Tabs, toast } from "./dom.js";
import { Figures } from "./figures.js";
import { fitted, rules } from "./fields.js";
import { address } from "./state.js";

const WAIT = 40; // milliseconds between the last move of a slider and the question
const PATIENCE = 350; // milliseconds after which the page says that it waits
const CALM = 1000; // milliseconds of rest before facts are read out
const MESSAGE = "message"; // id of the sentence that says what went wrong

const COMPUTING = "Computing …";
const NO_COMMAND = "No command of dln computes this view; Copy as Python does.";
const wide = matchMedia("(min-width: 60.01rem)");
const beside = matchMedia("(min-width: 75rem)"); // the mathematics stands beside the pictures

export class RoomPage {
  constructor(info, host) {
    this.info = info;
    this.values = Object.assign({}, ...info.views.map((view) => view.defaults));
    this.defaults = { ...this.values };
    this.host = host;
    this.build();
  }

  build() {
    const { info } = this;
    this.presets = info.presets.map((preset) => ({ preset, button: element("button", { type: "button", title: preset.about || null, onclick: () => this.preset(preset) }, preset.title) }));
    this.about = element("p", { class: "chosen", role: "status" });
    const presets = element("div", { class: "begin" },
      element("div", { class: "presets", role: "group", "aria-label": "Presets" }, element("span", {}, "Begin with"), ...this.presets.map(({ button }) => button)), this.about);
    this.tabs = new Tabs("Views", Object.fromEntries(info.views.map((view) => [view.name, view.title])), (name) => this.open(name));
    this.hint = element("p", { class: "hint" });
    this.adjusted = element("p", { class: "adjusted", role: "status" });
    this.start = element("button", { type: "button", class: "primary", onclick: () => this.run() }, "Start");
    this.cancel = element("button", { type: "button", onclick: () => this.stop() }, "Cancel");
    this.bar = element("progress", { max: 1, value: 0, "aria-label": "Progress" });
    this.told = element("span", { role: "status" });
    this.running = element("div", { class: "actions running" }, this.start, this.cancel, this.bar, this.told);
    this.asCommand = element("button", { type: "button", onclick: () => this.code("command") }, "Copy as command");
    this.noCommand = element("span", { class: "unseen", id: "no-command" }, NO_COMMAND);
    const actions = element("div", { class: "actions strip" },
      element("button", { type: "button", onclick: () => this.code("python") }, "Copy as Python"), this.asCommand, this.noCommand,
      element("button", { type: "button", onclick: () => copy(location.href) }, "Copy link"),
      element("button", { type: "button", onclick: () => this.reset() }, "Reset"));
    this.facts = element("dl", { class: "facts strip" });
    this.wait = element("p", { class: "wait", role: "status" });
    this.sentence = element("p");
    this.error = element("div", { class: "message", role: "alert", id: MESSAGE, hidden: true }, this.sentence,
      element("button", { type: "button", onclick: () => this.reset() }, "Reset all values"));
    this.invitation = element("p", { class: "invitation", hidden: true }, "Nothing is computed for these values yet. Press Start: the pictures come while it runs.");
    this.pictures = element("div", { class: "figures" });
    this.remarks = element("div");
    const stage = element("div", { class: "stage" }, element("div", { class: "notices" }, this.wait, this.error), this.invitation, this.pictures);
    this.panel = element("section", { class: "panel", id: "view", role: "tabpanel" },
      element("div", { class: "head" }, this.hint, actions), this.adjusted, this.running, this.facts, stage, this.remarks);
    const mathematics = remembered(element("details", { class: "mathematics", ontoggle: () => this.figures.fit() },
      element("summary", {}, "The mathematics"), element("div", { html: info.mathematics, tabindex: "0", role: "region", "aria-label": "The mathematics" })), "deeplinear-mathematics", beside.matches);
    this.host.replaceChildren(element("div", { class: "room" },
      element("div", { class: "intro" },
        element("h1", {}, info.title),
        remembered(element("details", { class: "story" }, element("summary", {}, "The story"), element("div", { html: info.story })), "deeplinear-story", wide.matches),
        presets),
      mathematics, this.tabs.node, this.sheet(), this.panel));
    this.figures = new Figures(this.pictures, info.name, {
      set: (values) => this.set(values, true),
      get: (name) => this.values[name],
      field: (name) => rules(this.view.parameters.properties[name]),
    });
  }

  // The controls: a column on wide screens, on narrow ones a sheet at the lower edge under a line with the values.
  sheet() {
    this.line = element("span", { class: "values" });
    this.fields = element("div", { class: "fields" });
    const sheet = element("details", {}, element("summary", {}, element("b", {}, "Parameters"), this.line), this.fields);
    this.fit = () => { sheet.open = wide.matches; };
    this.fit();
    wide.addEventListener("change", this.fit);
    sheet.querySelector("summary").addEventListener("click", () => {
      const box = this.pictures.getBoundingClientRect();
      if (!sheet.open && (box.bottom < 100 || box.top > innerHeight / 3)) this.pictures.scrollIntoView({ block: "start" });
    });
    return element("aside", { class: "controls", "aria-label": "Parameters" }, sheet);
  }

  // Go to a view, with values from a link or a preset.
  show(name, values = {}) {
    this.values = { ...this.defaults };
    for (const [key, value] of Object.entries(values)) if (key in this.defaults) this.values[key] = value;
    this.open(name);
  }

  // Views share values by name: those that this one does not take are changed to some that it does, and it says so.
  open(name) {
    this.abandon();
    this.eager = false;
    this.view = this.info.views.find((view) => view.name === name) ?? this.info.views[0];
    this.tabs.choose(this.view.name, this.panel);
    const words = [];
    for (const [key, field] of Object.entries(this.view.parameters.properties)) {
      const { value, word } = fitted(field, this.values[key]);
      this.values[key] = value;
      if (word) words.push(word);
    }
    this.hint.textContent = this.view.hint;
    this.adjusted.textContent = words.join(" ");
    const command = this.view.has_command ?? true;
    this.asCommand.setAttribute("aria-disabled", String(!command));
    this.asCommand.title = command ? "" : NO_COMMAND;
    if (command) this.asCommand.removeAttribute("aria-describedby");
    else this.asCommand.setAttribute("aria-describedby", this.noCommand.id);
    this.running.hidden = this.view.kind !== "run";
    this.idle();
    this.figures.clear();
    this.pictures.classList.remove("stale");
    this.invitation.hidden = this.error.hidden = true;
    this.facts.replaceChildren();
    this.facts.style.minHeight = "";
    this.remarks.replaceChildren();
    this.controls = controls(this.view.parameters, (values) => this.set(values, false));
    this.fields.replaceChildren(...this.controls.nodes);
    this.controls.show(this.values);
    this.changed(false);
  }

  // A preset is there to be seen: what is simulated begins at once, unless an answer is kept.
  preset(preset) {
    this.show(preset.view, preset.values);
    this.eager = this.view.kind === "run";
  }

  // Mark the preset whose values stand there.
  choose() {
    const now = JSON.stringify(this.params());
    const found = this.presets.find(({ preset }) => {
      if (preset.view !== this.view.name) return false;
      return now === JSON.stringify(Object.fromEntries(Object.keys(this.view.defaults).map((name) => [name, preset.values[name] ?? this.defaults[name]])));
    });
    for (const one of this.presets) one.button.setAttribute("aria-pressed", String(one === found));
    const about = found?.preset.about ?? "";
    if (this.about.textContent !== about) this.about.textContent = about;
  }

  // Values by the user's hand.
  set(values, follows) {
    this.eager = false;
    Object.assign(this.values, values);
    this.changed(follows);
  }

  reset() { this.show(this.view.name); }

  params() { return Object.fromEntries(Object.keys(this.view.defaults).map((name) => [name, this.values[name]])); }

  path() { return `/api/rooms/${this.info.name}/${this.view.name}`; }

  changed(follows) {
    if (follows) this.controls.show(this.values);
    this.line.textContent = this.controls.tell(this.values);
    this.choose();
    clearTimeout(this.later);
    this.later = setTimeout(() => {
      history.replaceState(null, "", address(this.info.name, this.view.name, this.values, this.defaults));
      this.ask();
    }, WAIT);
    if (this.view.kind !== "run") return;
    if (this.task) this.stop();
    if (this.figures.cards.size) this.pictures.classList.add("stale");
  }

  // One question at a time, the latest wins: closed forms are computed, of simulations a kept answer is shown.
  async ask() {
    if (this.question) { this.askAgain = true; return; }
    const question = this.question = new AbortController();
    const closed = this.view.kind === "closed";
    const asked = JSON.stringify(this.params());
    // A kept answer is of no use any more where the values have changed or a simulation has begun.
    const wanted = () => question === this.question && (closed || (!this.start.disabled && asked === JSON.stringify(this.params())));
    const late = setTimeout(() => { if (closed && wanted()) this.waits(COMPUTING); }, PATIENCE);
    if (closed) this.pictures.classList.add("busy");
    try {
      const answer = await post(closed ? this.path() : `${this.path()}/kept`, this.params(), question.signal);
      if (wanted()) this.found(answer);
    } catch (error) {
      if (wanted()) this.fail(error);
    }
    clearTimeout(late);
    if (question !== this.question) return;
    this.forget();
    if (closed) this.waits("");
    this.host.dataset.answered = String(Number(this.host.dataset.answered ?? 0) + 1);
    if (this.askAgain) { this.askAgain = false; this.ask(); }
  }

  // No longer wait for the answer to a question.
  forget() {
    this.question?.abort();
    this.question = null;
    this.pictures.classList.remove("busy");
  }

  // The answer to a question; nothing where no simulation of these values is kept.
  found(answer) {
    if (answer) {
      this.answer(answer);
      if (this.view.kind === "run") this.told.textContent = "Kept from before.";
      return;
    }
    this.error.hidden = true;
    this.controls.wrong([]);
    if (this.eager) { this.run(); return; }
    const any = this.figures.cards.size > 0;
    this.invitation.hidden = any;
    this.told.textContent = any ? "The pictures are of other values. Start again." : "";
  }

  // Say over the pictures what is waited for.
  waits(text) { if (this.wait.textContent !== text) this.wait.textContent = text; }

  // Simulations: start, follow, cancel.
  async run() {
    this.abandon();
    this.eager = false;
    this.error.hidden = this.invitation.hidden = true;
    this.start.disabled = true;
    this.told.textContent = "asking …";
    const { view } = this;
    let seen = false; // whether there is a picture of it yet
    try {
      const task = await post(`${this.path()}/runs`, this.params());
      if (view !== this.view) { remove(`/api/runs/${task.id}`).catch(() => {}); return; }
      this.task = task.id;
      this.cancel.hidden = this.bar.hidden = false;
      this.quiet = follow(task.id, {
        progress: (told) => {
          this.bar.value = told.fraction;
          const waiting = told.state === "waiting";
          this.told.textContent = waiting ? "Waits for its turn." : told.text;
          this.waits(seen ? "" : waiting ? "Waits for its turn." : told.text ? `Computing: ${told.text}` : COMPUTING);
        },
        partial: (answer) => { seen = true; this.waits(""); this.answer(answer); },
        done: (answer) => { this.idle("Done."); this.answer(answer); },
        failed: (failure) => { this.idle(); this.fail(new Failure(failure)); },
        cancelled: () => { this.idle("Cancelled."); this.invitation.hidden = this.figures.cards.size > 0; },
      });
    } catch (error) {
      if (view !== this.view) return;
      this.idle();
      this.fail(error);
    }
  }

  idle(text = "") {
    this.task = null;
    this.start.disabled = false;
    this.cancel.hidden = this.bar.hidden = true;
    this.bar.value = 0;
    this.told.textContent = text;
    this.waits("");
  }

  async stop() {
    const { task } = this;
    if (!task) return;
    try { await remove(`/api/runs/${task}`); } catch { /* it has ended by itself */ }
  }

  // Nothing that was asked or started for this view is wanted any more.
  abandon() {
    this.forget();
    this.askAgain = false;
    this.quiet?.();
    this.stop();
    this.task = null;
  }

  answer(answer) {
    this.error.hidden = this.invitation.hidden = true;
    this.pictures.classList.remove("stale");
    this.controls.wrong([]);
    this.facts.replaceChildren(...answer.facts.map((fact) => element("div", { class: `fact ${fact.tone}` },
      element("dt", {}, fact.label), element("dd", {}, fact.value, fact.note ? element("small", {}, fact.note) : null))));
    this.facts.style.minHeight = `${Math.max(this.facts.offsetHeight, Number.parseFloat(this.facts.style.minHeight) || 0)}px`; // never shrinks under the pictures
    if (this.facts.scrollWidth > this.facts.clientWidth) this.facts.tabIndex = 0;
    else this.facts.removeAttribute("tabindex");
    this.remarks.replaceChildren(...answer.remarks.map((text) => element("p", { class: "remark" }, text)));
    this.figures.draw(answer.figures);
    clearTimeout(this.speech);
    this.speech = setTimeout(() => announce(answer.facts.map((fact) => `${fact.label}: ${fact.value}.`).join(" ")), CALM);
  }

  fail(error) {
    this.sentence.textContent = error.message;
    this.error.hidden = false;
    this.invitation.hidden = true;
    this.pictures.classList.add("stale");
    this.controls.wrong(error.fields ?? [], MESSAGE);
  }

  async code(which) {
    if (which === "command" && this.asCommand.getAttribute("aria-disabled") === "true") { toast(NO_COMMAND); return; }
    try {
      const text = (await post(`${this.path()}/code`, this.params()))[which];
      if (text === null) {
        dialog("As a command", element("p", {}, "No command of dln computes this view for these values; a Python script does."),
          element("button", { type: "button", class: "primary", onclick: (event) => { event.target.closest("dialog").close(); this.code("python"); } }, "Show the script"));
        return;
      }
      const title = which === "python" ? "As a Python script" : "As a command";
      dialog(title, element("pre", { tabindex: "0" }, text), element("div", { class: "row" }, element("button", { type: "button", class: "primary", autofocus: true, onclick: () => copy(text) }, "Copy")));
      copy(text);
    } catch (error) {
      this.fail(error);
    }
  }

  redraw() { this.figures.again(); }

  close() {
    clearTimeout(this.later);
    clearTimeout(this.speech);
    wide.removeEventListener("change", this.fit);
    this.abandon();
    this.figures.clear();
  }
}

export const rooms = () => get("/api/rooms");
