// The page of results: experiments, checks and errata of a store, with filters and a search.

import { get } from "./api.js";
import { copy, dialog, element, short, Tabs } from "./dom.js";
import { address } from "./state.js";

const TABS = { experiments: "Experiments", checks: "Checks", errata: "Errata" };
const DEFAULTS = { paper: "", status: "", search: "" };
const WORDS = { holds: "holds", fails: "fails", untold: "not told", erratum: "erratum", unmet: "not met" };
const SIGNS = { holds: "✓", fails: "✗", untold: "–", erratum: "≠", unmet: "–" };
const TONES = { holds: "good", fails: "bad", erratum: "warning" };
const STATUSES = { experiments: ["holds", "fails", "untold"], checks: ["holds", "erratum", "fails", "unmet"], errata: ["measured", "not measured"] };
const ROWS = 100; // rows that are shown at once; a button shows more

// Texts of a store are text; between dollars they are formulas, shown as they are written.
const prose = (text) => element("span", {}, ...String(text).split(/\$([^$]+)\$/).map((part, i) => (i % 2 ? element("i", {}, part) : part)));

const badge = (status, text) => element("span", { class: `fact ${TONES[status] ?? "plain"} badge` }, element("b", {}, element("span", { "aria-hidden": "true" }, `${SIGNS[status] ?? "–"} `), text ?? WORDS[status] ?? status));

const day = (text) => (text ? text.slice(0, 16).replace("T", " ") : "–");

const took = (seconds) => (seconds < 90 ? `${short(seconds)} s` : `${Math.round(seconds / 60)} min`);

const command = (text) => element("div", { class: "row" }, element("code", {}, text), element("button", { type: "button", onclick: () => copy(text) }, "Copy"));

const fact = (label, value, tone = "plain", note = "") => element("div", { class: `fact ${tone}` }, element("dt", {}, label), element("dd", {}, value, note ? element("small", {}, note) : null));

function table(columns, rows) {
  return element("div", { class: "scroll results", tabindex: "0" }, element("table", {},
    element("thead", {}, element("tr", {}, ...columns.map((text) => element("th", { scope: "col" }, text)))),
    element("tbody", {}, ...rows.map((cells) => line(cells, columns)))));
}

// On narrow screens a row is a card, in which each cell says which column it is of.
const line = (cells, columns = []) => element("tr", {}, ...cells.map((cell, i) => element("td", { "data-column": columns[i] ?? null }, cell)));

function claims(counts) {
  const found = ["holds", "fails", "untold"].filter((name) => counts[name]).map((name) => badge(name, `${counts[name]} ${counts[name] > 1 ? { holds: "hold", fails: "fail", untold: "not told" }[name] : WORDS[name]}`));
  return element("span", { class: "row" }, ...(found.length ? found : ["none"]));
}

export class StorePage {
  constructor(host) {
    this.host = host;
    this.values = { ...DEFAULTS };
    this.tab = "experiments";
    this.data = {};
    this.shown = ROWS;
    this.closed = false;
    this.build();
  }

  build() {
    this.tabs = new Tabs("Results", TABS, (name) => this.open(name));
    this.paper = element("select", { "aria-label": "Paper", onchange: () => this.filter("paper", this.paper.value) });
    this.status = element("select", { "aria-label": "Status", onchange: () => this.filter("status", this.status.value) });
    this.search = element("input", { type: "search", placeholder: "Search", "aria-label": "Search", oninput: () => this.filter("search", this.search.value) });
    this.count = element("span", { role: "status" });
    this.error = element("p", { class: "message", role: "alert", hidden: true });
    this.message = element("p", { class: "hint" });
    this.facts = element("dl", { class: "facts strip" }, ...["Experiments", "Claims held", "Checks", "Errata seen", "Store"].map((label) => fact(label, "…")));
    this.body = element("div", { class: "list" });
    const again = element("button", { type: "button", onclick: () => this.load() }, "Look again");
    this.panel = element("section", { class: "panel", id: "view", role: "tabpanel" },
      element("div", { class: "actions filters" }, this.paper, this.status, this.search, again, this.count), this.error, this.message, this.body);
    this.host.replaceChildren(element("div", { class: "store" },
      element("h1", {}, "Results"),
      element("p", { class: "story" }, "Figures of the papers made again with what they claim, theorems that were run, and places that are printed wrongly."),
      this.facts, this.tabs.node, this.panel));
  }

  // Go to a part of the page, with filters from a link.
  show(name, values = {}) {
    for (const key of Object.keys(DEFAULTS)) this.values[key] = typeof values[key] === "string" ? values[key] : DEFAULTS[key];
    this.search.value = this.values.search;
    this.open(name in TABS ? name : "experiments");
  }

  open(name) {
    if (name !== this.tab && !STATUSES[name].includes(this.values.status)) this.values.status = "";
    this.tab = name;
    this.shown = ROWS;
    this.tabs.choose(name, this.panel);
    this.choices();
    this.remember();
    this.load();
  }

  filter(key, value) {
    this.values[key] = value;
    this.shown = ROWS;
    this.remember();
    this.draw();
  }

  remember() { history.replaceState(null, "", address("results", this.tab, this.values, DEFAULTS)); }

  async load() {
    this.host.dataset.loading = "yes";
    if (!this.items().length) this.body.replaceChildren(element("p", { class: "loading", role: "status" }, "Reading the store …"));
    try {
      const [store, errata] = await Promise.all([get("/api/store"), this.tab === "errata" ? get("/api/errata") : this.data.errata]);
      if (this.closed) return;
      this.data = { store, errata };
      this.error.hidden = true;
      this.draw();
    } catch (error) {
      if (this.closed) return;
      this.error.textContent = error.message;
      this.error.hidden = false;
      this.body.querySelector(".loading")?.remove();
    } finally {
      delete this.host.dataset.loading;
    }
  }

  items() {
    const { store, errata } = this.data;
    return { experiments: store?.runs, checks: store?.checks, errata: errata?.errata }[this.tab] ?? [];
  }

  // Paper and status first, then every word of the search anywhere in the texts.
  matching() {
    const { paper, status, search } = this.values;
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    return this.items().filter((one) => {
      if (paper && one.paper !== paper) return false;
      const own = this.tab === "errata" ? (one.missed === null ? "not measured" : "measured") : one.status;
      if (status && own !== status) return false;
      const text = [one.id, one.source, one.shows, one.statement, one.preset, one.printed, one.corrected].filter(Boolean).join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    });
  }

  choices() {
    const papers = [...new Set(this.items().map((one) => one.paper))];
    if (this.values.paper && !papers.includes(this.values.paper)) papers.push(this.values.paper);
    const option = (value, text) => element("option", { value }, text);
    this.paper.replaceChildren(option("", "All papers"), ...papers.map((name) => option(name, name)));
    this.paper.value = this.values.paper;
    this.status.replaceChildren(option("", "Any status"), ...STATUSES[this.tab].map((name) => option(name, WORDS[name] ?? name)));
    this.status.value = this.values.status;
  }

  draw() {
    const { store } = this.data;
    if (!store) return;
    this.message.textContent = store.message;
    this.message.hidden = !store.message;
    const { counts } = store;
    const told = counts.claims.holds + counts.claims.fails;
    const tone = (bad, any) => (bad ? "bad" : any ? "good" : "plain");
    this.facts.replaceChildren(
      fact("Experiments", `${counts.experiments} in ${counts.runs} runs`),
      fact("Claims held", told ? `${counts.claims.holds} of ${told}` : "none yet", tone(counts.claims.fails, told), counts.claims.untold ? `${counts.claims.untold} not told at that size` : ""),
      fact("Checks", counts.checks ? String(counts.checks) : "none yet", tone(counts.failing, counts.checks), counts.failing ? `${counts.failing} fail` : counts.checks ? "none fails" : ""),
      fact("Errata seen", String(counts.errata), counts.errata ? "warning" : "plain"),
      fact("Store", store.path),
      ...(counts.damaged ? [fact("Damaged", String(counts.damaged), "bad", store.damaged[0])] : []));
    this.choices();
    const found = this.matching();
    const all = this.items().length;
    this.count.textContent = found.length === all ? `${all} listed` : `${found.length} of ${all}`;
    const rows = found.slice(0, this.shown);
    const more = found.length > rows.length ? element("button", { type: "button", onclick: () => { this.shown += ROWS; this.draw(); } }, `Show more (${found.length - rows.length} left)`) : null;
    const none = found.length ? null : all ? element("p", { class: "hint" }, "Nothing fits these filters.") : store.message ? null : this.missing(store);
    this.body.replaceChildren(...[rows.length ? this[this.tab](rows) : none, more].filter(Boolean));
    this.host.dataset.drawn = `${this.tab}:${found.length}`;
  }

  // What to do where a part of the store is empty.
  missing(store) {
    const example = { experiments: "dln experiment run completion/fig2 --preset quick", checks: "dln check run exact/theorem-4.3" }[this.tab];
    if (!example) return null;
    return element("div", {}, element("p", {}, `There are no ${this.tab} in this store yet. Make one in a terminal, then Look again:`), command(`${example} --store ${store.path}`));
  }

  experiments(runs) {
    return table(["Experiment", "What it shows", "Claims", "Made"], runs.map((run) => [
      element("button", { type: "button", class: "link", onclick: () => this.run(run) }, element("b", {}, run.source || run.id), element("br"), element("code", {}, run.id), ` ${run.preset ?? "own parameters"}`),
      prose(run.shows), claims(run.claims), element("small", {}, day(run.started), element("br"), took(run.seconds))]));
  }

  checks(checks) {
    return table(["Status", "Statement", "Closest residual", "Violations caught", "Made"], checks.map((one) => [
      badge(one.status),
      element("div", {}, element("b", {}, `${one.source} `), element("code", {}, one.id), element("div", {}, prose(one.statement)), one.status === "fails" ? element("p", { class: "message" }, one.message) : null, command(one.command)),
      element("span", { title: one.part }, one.residual === null ? "–" : short(one.residual), element("br"), element("small", {}, `at most ${one.tolerance === null ? "–" : short(one.tolerance)}`)),
      `${one.caught} of ${one.violations}`,
      element("small", {}, day(one.started), element("br"), `${one.instances} instances, ${took(one.seconds)}`)]));
  }

  errata(errata) {
    return element("div", { class: "cards" }, ...errata.map((one) => element("article", { class: "erratum" },
      element("h2", {}, `${one.source} `, element("code", {}, one.id)),
      element("dl", {},
        element("dt", {}, "Printed"), element("dd", {}, prose(one.printed)),
        element("dt", {}, "Right"), element("dd", {}, prose(one.corrected)),
        element("dt", {}, "Evidence"), element("dd", {}, one.missed === null
          ? `${one.status || "not in this store yet"}`
          : `the printed form is missed by ${short(one.missed)}, where ${short(one.allowed)} would be allowed`)),
      command(one.command))));
  }

  // One run in full.
  async run(run) {
    let found;
    try { found = await get(`/api/store/runs/${run.key}`); } catch (error) { this.error.textContent = error.message; this.error.hidden = false; return; }
    const picture = found.picture ? element("img", { src: `/api/store/pictures/${found.picture.digest}`, alt: `${found.source}: ${found.shows}`, class: "picture" }) : element("p", { class: "hint" }, "There is no picture.");
    const facts = (values) => element("table", {}, element("tbody", {}, ...Object.entries(values).map(([name, value]) => line([element("code", {}, name), value]))));
    dialog(`${found.source} (${found.id}, ${found.preset ?? "own parameters"})`,
      element("p", {}, prose(found.shows)), picture,
      found.statements.length ? table(["Verdict", "Claim", "Measured", "Expected"], found.statements.map((one) => [
        badge(one.verdict), element("div", {}, prose(one.statement), one.note ? element("div", {}, element("small", {}, prose(one.note))) : null), one.measured === null ? "–" : short(one.measured), prose(one.expected)])) : null,
      found.command ? element("div", {}, element("p", {}, "Run it again:"), command(found.command)) : null,
      found.remark ? element("p", { class: "remark" }, prose(found.remark)) : null,
      found.notes.trim() ? element("details", {}, element("summary", {}, "Notes"), ...found.notes.split(/\n\s*\n/).map((text) => element("p", {}, prose(text)))) : null,
      element("details", {}, element("summary", {}, "Parameters"), facts(found.parameters)),
      element("details", {}, element("summary", {}, "How it was made"), facts({ started: found.started, seconds: String(found.seconds), folder: found.folder, ...found.environment })));
  }

  redraw() {}

  close() { this.closed = true; }
}
