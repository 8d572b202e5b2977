// Small helpers to build the page. Text is always set as text; only texts of our own server are taken as HTML.

export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "html") node.innerHTML = value;
    else if (name in node && typeof value !== "string") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// Tell those who do not see the page.
export function announce(text) {
  const place = document.getElementById("spoken");
  if (place.textContent !== text) place.textContent = text;
}

// Values that the browser keeps between visits, where it does.
const kept = {
  get: (name) => { try { return localStorage.getItem(name); } catch { return null; } },
  set: (name, value) => { try { localStorage.setItem(name, value); } catch { /* storage may be off */ } },
};

// Open or closed as it was left last time.
export function remembered(details, name, open) {
  const found = kept.get(name);
  details.open = found === null ? open : found === "open";
  details.querySelector("summary").addEventListener("click", () => kept.set(name, details.open ? "closed" : "open"));
  return details;
}

// A row of tabs for the panel with the id "view": arrows, Home and End go from one to the next.
export class Tabs {
  constructor(label, titles, open) {
    const names = Object.keys(titles);
    this.node = element("div", { class: "tabs", role: "tablist", "aria-label": label }, ...names.map((name) =>
      element("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "view", onclick: () => open(name) }, titles[name])));
    this.node.addEventListener("keydown", (event) => {
      const at = names.indexOf(this.name);
      const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: names.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      open(names[(to + names.length) % names.length]);
      this.node.querySelector('[aria-selected="true"]').focus();
    });
  }

  choose(name, panel) {
    this.name = name;
    for (const tab of this.node.children) {
      const chosen = tab.id === `tab-${name}`;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
      if (chosen) within(this.node, tab);
    }
    panel.setAttribute("aria-labelledby", `tab-${name}`);
  }
}

// Scroll a row so that one of its parts is seen.
export function within(row, part) {
  row.scrollLeft += part.getBoundingClientRect().left - row.getBoundingClientRect().left - (row.clientWidth - part.offsetWidth) / 2;
}

export function toast(text) {
  const note = element("p", {}, text);
  const place = document.getElementById("toasts");
  (document.querySelector("dialog[open]") ?? document.body).append(place); // an open dialog covers everything else
  place.append(note);
  setTimeout(() => note.remove(), 2600);
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied.");
  } catch {
    toast("The browser does not allow copying here; mark the text instead.");
  }
}

export function download(name, content, type) {
  const url = content instanceof Blob ? URL.createObjectURL(content) : URL.createObjectURL(new Blob([content], { type }));
  const link = element("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

export function dialog(title, ...content) {
  const box = element("dialog", { "aria-label": title },
    element("div", { class: "row title" }, element("h2", {}, title), element("button", { type: "button", onclick: () => box.close() }, "Close")),
    ...content);
  box.addEventListener("close", () => {
    document.body.append(document.getElementById("toasts"));
    box.remove();
  });
  document.body.append(box);
  box.showModal();
  return box;
}

// A number for people: few digits, no trailing zeros.
export const short = (value) => {
  const number = Number(value);
  if (!Number.isFinite(number)) return "–";
  if (number !== 0 && (Math.abs(number) < 1e-3 || Math.abs(number) >= 1e5)) return number.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
  return String(Number(number.toPrecision(4)));
};
