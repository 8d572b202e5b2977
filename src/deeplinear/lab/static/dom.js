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

export function toast(text) {
  const note = element("p", {}, text);
  document.getElementById("toasts").append(note);
  setTimeout(() => note.remove(), 2600);
}

export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    toast(`${what} copied.`);
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
    element("div", { class: "row" }, element("h2", {}, title), element("button", { type: "button", onclick: () => box.close() }, "Close")),
    ...content);
  box.addEventListener("close", () => box.remove());
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
