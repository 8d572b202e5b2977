// A room on the page: story, presets, controls, and the view that is looked at.

import { Failure, follow, get, post, remove } from "./api.js";
import { controls } from "./controls.js";
import { copy, dialog, element } from "./dom.js";
import { Figures } from "./figures.js";
import { address, alike } from "./state.js";

const WAIT = 40; // milliseconds between the last move of a slider and the question

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
    const presets = element("div", { class: "presets", role: "group", "aria-label": "Presets" }, element("span", {}, "Begin with"),
      ...info.presets.map((preset) => element("button", { type: "button", title: preset.about || null, onclick: () => this.preset(preset) }, preset.title)));
    this.tabs = element("div", { class: "tabs", role: "tablist", "aria-label": "Views" }, ...info.views.map((view) =>
      element("button", { type: "button", role: "tab", id: `tab-${view.name}`, "aria-controls": "view", onclick: () => this.open(view.name) }, view.title)));
    this.tabs.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      const at = info.views.findIndex((view) => view.name === this.view.name);
      this.open(info.views[(at + step + info.views.length) % info.views.length].name);
      this.tabs.querySelector('[aria-selected="true"]').focus();
    });
    this.hint = element("p", { class: "hint" });
    this.start = element("button", { type: "button", class: "primary", onclick: () => this.run() }, "Start");
    this.cancel = element("button", { type: "button", onclick: () => this.stop() }, "Cancel");
    this.bar = element("progress", { max: 1, value: 0, "aria-label": "Progress" });
    this.told = element("span", { role: "status" });
    this.running = element("div", { class: "actions" }, this.start, this.cancel, this.bar, this.told);
    const actions = element("div", { class: "actions" },
      element("button", { type: "button", onclick: () => this.code("python") }, "Copy as Python"),
      this.asCommand = element("button", { type: "button", onclick: () => this.code("command") }, "Copy as command"),
      element("button", { type: "button", onclick: () => copy(location.href, "Link") }, "Copy link"),
      element("button", { type: "button", onclick: () => this.reset() }, "Reset"));
    this.error = element("p", { class: "message", role: "alert", hidden: true });
    this.facts = element("dl", { class: "facts" });
    this.remarks = element("div");
    this.pictures = element("div", { class: "figures", "aria-live": "off" });
    this.panel = element("aside", { class: "controls", "aria-label": "Parameters" });
    const head = element("div", { class: "head" }, this.hint, actions);
    const view = element("section", { class: "panel", id: "view", role: "tabpanel" }, this.tabs, head, this.running, this.error, this.facts, this.pictures, this.remarks);
    this.host.replaceChildren(element("div", { class: "room" },
      element("div", { class: "intro" },
        element("div", {}, element("h1", {}, info.title), element("div", { class: "story", html: info.story })),
        element("details", { open: matchMedia("(min-width: 60rem)").matches }, element("summary", {}, "The mathematics"), element("div", { html: info.mathematics }))),
      presets, this.panel, view));
    this.figures = new Figures(this.pictures, info.name, (values) => { Object.assign(this.values, values); this.changed(true); });
  }

  // Go to a view, with values from a link or a preset.
  show(name, values = {}) {
    this.values = { ...this.defaults };
    for (const [key, value] of Object.entries(values)) if (key in this.defaults && alike(value, this.defaults[key])) this.values[key] = value;
    this.open(name);
  }

  open(name) {
    this.abandon();
    this.view = this.info.views.find((view) => view.name === name) ?? this.info.views[0];
    for (const tab of this.tabs.children) {
      const chosen = tab.id === `tab-${this.view.name}`;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
    }
    this.hint.textContent = this.view.hint;
    this.asCommand.hidden = false;
    this.running.hidden = this.view.kind !== "run";
    this.idle();
    this.figures.clear();
    this.pictures.classList.remove("stale");
    this.facts.replaceChildren();
    this.remarks.replaceChildren();
    this.controls = controls(this.view.parameters, (key, value) => { this.values[key] = value; this.changed(false); });
    this.panel.replaceChildren(...this.controls.nodes);
    this.controls.show(this.values);
    this.changed(false);
  }

  preset(preset) { this.show(preset.view, preset.values); }

  reset() { this.show(this.view.name); }

  params() { return Object.fromEntries(Object.keys(this.view.defaults).map((name) => [name, this.values[name]])); }

  path() { return `/api/rooms/${this.info.name}/${this.view.name}`; }

  changed(follows) {
    if (follows) this.controls.show(this.values);
    clearTimeout(this.later);
    this.later = setTimeout(() => {
      history.replaceState(null, "", address(this.info.name, this.view.name, this.values, this.defaults));
      if (this.view.kind === "closed") this.ask();
    }, WAIT);
    if (this.view.kind === "run" && this.task) this.stop();
    if (this.view.kind === "run" && this.figures.cards.size) {
      this.pictures.classList.add("stale");
      this.told.textContent = "The pictures are of other values. Start again.";
    }
  }

  // Closed forms: one question at a time, the latest wins.
  async ask() {
    if (this.asking) { this.askAgain = true; return; }
    this.asking = true;
    const { view } = this;
    this.pictures.classList.add("busy");
    try {
      const answer = await post(this.path(), this.params());
      if (view === this.view) this.answer(answer);
    } catch (error) {
      if (view === this.view) this.fail(error);
    } finally {
      this.asking = false;
      this.pictures.classList.remove("busy");
      this.host.dataset.answered = String(Number(this.host.dataset.answered ?? 0) + 1);
      if (this.askAgain) { this.askAgain = false; if (this.view.kind === "closed") this.ask(); }
    }
  }

  // Simulations: start, follow, cancel.
  async run() {
    this.abandon();
    this.error.hidden = true;
    this.start.disabled = true;
    this.told.textContent = "asking …";
    try {
      const task = await post(`${this.path()}/runs`, this.params());
      this.task = task.id;
      this.cancel.hidden = this.bar.hidden = false;
      this.quiet = follow(task.id, {
        progress: (told) => { this.bar.value = told.fraction; this.told.textContent = told.state === "waiting" ? "waits for its turn" : told.text; },
        partial: (answer) => this.answer(answer),
        done: (answer) => { this.task = null; this.idle("done"); this.answer(answer); },
        failed: (failure) => { this.task = null; this.idle(); this.fail(new Failure(failure)); },
        cancelled: () => { this.task = null; this.idle("cancelled"); },
      });
    } catch (error) {
      this.idle();
      this.fail(error);
    }
  }

  idle(text = "") {
    this.start.disabled = false;
    this.cancel.hidden = this.bar.hidden = true;
    this.bar.value = 0;
    this.told.textContent = text;
  }

  async stop() {
    const { task } = this;
    if (!task) return;
    try { await remove(`/api/runs/${task}`); } catch { /* it has ended by itself */ }
  }

  abandon() {
    this.quiet?.();
    this.stop();
    this.task = null;
  }

  answer(answer) {
    this.error.hidden = true;
    this.pictures.classList.remove("stale");
    this.controls.wrong([]);
    this.facts.replaceChildren(...answer.facts.map((fact) => element("div", { class: `fact ${fact.tone}` },
      element("dt", {}, fact.label), element("dd", {}, fact.value, fact.note ? element("small", {}, fact.note) : null))));
    this.remarks.replaceChildren(...answer.remarks.map((text) => element("p", { class: "remark" }, text)));
    this.figures.draw(answer.figures);
  }

  fail(error) {
    this.error.textContent = error.message;
    this.error.hidden = false;
    this.controls.wrong(error.fields ?? []);
  }

  async code(which) {
    try {
      const found = await post(`${this.path()}/code`, this.params());
      const text = found[which];
      if (text === null) { dialog("As a command", element("p", {}, "There is no command for this view; the script does the same.")); return; }
      const title = which === "python" ? "As a Python script" : "As a command";
      dialog(title, element("div", { class: "row" }, element("button", { type: "button", class: "primary", onclick: () => copy(text, "Text") }, "Copy")), element("pre", { tabindex: "0" }, text));
    } catch (error) {
      this.fail(error);
    }
  }

  redraw() { this.figures.again(); }

  close() { clearTimeout(this.later); this.abandon(); this.figures.clear(); }
}

export const rooms = () => get("/api/rooms");
