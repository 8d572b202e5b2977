
"use strict";

/* What a browser may refuse to remember, it forgets without a word. */
const memory = {
  read(name) { try { return localStorage.getItem(name); } catch { return null; } },
  write(name, value) { try { localStorage.setItem(name, value); } catch { /* private window */ } },
};
const THEME = "deeplinear-theme";
if (["light", "dark"].includes(memory.read(THEME))) document.documentElement.dataset.theme = memory.read(THEME);

document.addEventListener("DOMContentLoaded", () => {
  theme();
  contents();
  folds();
  filter();
  viewer();
});

/* Light or dark: as the system has it, until the button says otherwise. */
function theme() {
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const current = () => document.documentElement.dataset.theme || (system.matches ? "dark" : "light");
  const other = () => (current() === "dark" ? "light" : "dark");
  const label = () => { button.textContent = other() === "dark" ? "Dark" : "Light"; button.setAttribute("aria-label", `Switch to ${other()} colours`); };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = other();
    memory.write(THEME, current());
    label();
  });
  system.addEventListener("change", label);
  button.hidden = false;
  label();
}

/* On a narrow screen the contents are folded, and fold again when a place is chosen. */
function contents() {
  const box = document.getElementById("contents");
  const narrow = matchMedia("(max-width: 60rem)");
  const fit = () => { box.open = !narrow.matches; };
  narrow.addEventListener("change", fit);
  box.addEventListener("click", (event) => { if (event.target.closest("a") && narrow.matches) box.open = false; });
  fit();
}

/* A link into something folded unfolds it; on paper everything is unfolded. */
function folds() {
  const reveal = () => {
    const target = document.getElementById(location.hash.slice(1));
    if (!target) return;
    for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    target.querySelectorAll(":scope > details").forEach((fold) => { fold.open = true; });
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  if (location.hash) reveal();
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("main details:not([open])")];
    closed.forEach((fold) => { fold.open = true; });
  });
  addEventListener("afterprint", () => closed.forEach((fold) => { fold.open = false; }));
}

/* Which checks are shown. */
function filter() {
  const box = document.querySelector(".filter");
  if (!box) return;
  const rows = [...document.querySelectorAll("tr[data-status]")];
  const apply = () => {
    const chosen = box.querySelector("input:checked").value;
    rows.forEach((row) => { row.hidden = chosen !== "all" && row.dataset.status !== chosen; });
    document.querySelectorAll("#checks .paper").forEach((paper) => {
      paper.hidden = !paper.querySelector("tr[data-status]:not([hidden])");
    });
    document.getElementById("filter-count").textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
  };
  box.addEventListener("change", apply);
  box.hidden = false;
  apply();
}

/* A figure on the whole screen: wheel, drag, two fingers; + - 0, arrows, Esc. */
function viewer() {
  const dialog = document.getElementById("viewer");
  const stage = document.getElementById("stage");
  const image = document.getElementById("viewer-image");
  const STEP = 1.25, LEAST = 0.25, MOST = 40;
  const view = { x: 0, y: 0, scale: 1 };
  const fingers = new Map();

  const draw = () => {
    image.style.transform = `translate(${view.x}px, ${view.y}px) scale(${view.scale})`;
    document.getElementById("viewer-scale").textContent = `${Math.round(100 * view.scale)} %`;
  };
  /* The image is laid out at the size that fits; scale 1 is that size. */
  const fit = () => {
    const [width, height] = [image.naturalWidth || 4, image.naturalHeight || 3];
    const factor = Math.min(stage.clientWidth / width, stage.clientHeight / height) * 0.96;
    image.style.width = `${width * factor}px`;
    image.style.height = `${height * factor}px`;
    view.scale = 1;
    view.x = (stage.clientWidth - width * factor) / 2;
    view.y = (stage.clientHeight - height * factor) / 2;
    draw();
  };
  const zoom = (factor, x = stage.clientWidth / 2, y = stage.clientHeight / 2) => {
    const scale = Math.min(MOST, Math.max(LEAST, view.scale * factor));
    view.x = x - (x - view.x) * (scale / view.scale);
    view.y = y - (y - view.y) * (scale / view.scale);
    view.scale = scale;
    draw();
  };
  const pan = (x, y) => { view.x += x; view.y += y; draw(); };
  const place = (event) => {
    const box = stage.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const actions = {
    in: () => zoom(STEP), out: () => zoom(1 / STEP), fit, close: () => dialog.close(),
  };
  const keys = {
    "+": actions.in, "=": actions.in, "-": actions.out, "0": fit,
    ArrowLeft: () => pan(40, 0), ArrowRight: () => pan(-40, 0), ArrowUp: () => pan(0, 40), ArrowDown: () => pan(0, -40),
  };

  document.querySelectorAll("button.zoom").forEach((button) => button.addEventListener("click", async () => {
    const figure = button.querySelector("img");
    image.src = figure.src;
    image.alt = figure.alt;
    document.getElementById("viewer-title").textContent = figure.alt;
    dialog.showModal();
    dialog.querySelector("[data-zoom=in]").focus({ focusVisible: false });
    try { await image.decode(); } catch { /* a picture that cannot be decoded shows its text */ }
    fit();
  }));
  dialog.querySelectorAll("[data-zoom]").forEach((b) => b.addEventListener("click", () => actions[b.dataset.zoom]()));
  dialog.addEventListener("keydown", (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  addEventListener("resize", () => { if (dialog.open) fit(); });
  stage.addEventListener("wheel", (event) => {
    event.preventDefault();
    const { x, y } = place(event);
    zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), x, y);
  }, { passive: false });
  stage.addEventListener("pointerdown", (event) => {
    stage.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, place(event));
  });
  stage.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) return;
    const now = place(event);
    if (fingers.size === 1) pan(now.x - before.x, now.y - before.y);
    if (fingers.size === 2) {
      const [other] = [...fingers].filter(([id]) => id !== event.pointerId).map(([, point]) => point);
      const distance = (p) => Math.max(1, Math.hypot(p.x - other.x, p.y - other.y));
      pan((now.x - before.x) / 2, (now.y - before.y) / 2);
      zoom(distance(now) / distance(before), (now.x + other.x) / 2, (now.y + other.y) / 2);
    }
    fingers.set(event.pointerId, now);
  });
  for (const end of ["pointerup", "pointercancel"]) stage.addEventListener(end, (event) => fingers.delete(event.pointerId));
  stage.addEventListener("dblclick", (event) => { const { x, y } = place(event); zoom(2, x, y); });
}
