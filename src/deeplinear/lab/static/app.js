// The frame of the page: rooms, theme, status of the server.

import { get } from "./api.js";
import { element, within } from "./dom.js";
import { RoomPage, rooms } from "./room.js";
import { read } from "./state.js";
import { StorePage } from "./store.js";

const main = document.getElementById("main");
let list = [];
let page = null;

const RESULTS = "results";

function navigate() {
  const { room, view, values } = read();
  const info = room === RESULTS ? null : list.find((one) => one.name === room) ?? list[0];
  const there = info ? page?.info === info : page instanceof StorePage;
  if (!there) {
    page?.close();
    page = info ? new RoomPage(info, main) : new StorePage(main);
    document.title = `${info ? info.title : "Results"} · deeplinear lab`;
    scrollTo(0, 0);
  }
  const row = document.getElementById("rooms");
  for (const link of row.children) {
    const here = link.dataset.room === (info ? info.name : RESULTS);
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    if (here) within(row, link);
  }
  page.show(view || (info ? info.views[0].name : ""), values);
}

async function watchStatus() {
  const line = document.getElementById("status");
  try {
    const status = await get("/api/status");
    line.textContent = `Version ${status.version}`;
    setTimeout(watchStatus, 30000);
  } catch (error) {
    line.textContent = error.message;
    setTimeout(watchStatus, 3000);
  }
}

document.getElementById("theme").addEventListener("click", () => {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try { localStorage.setItem("deeplinear-theme", next); } catch { /* storage may be off */ }
  page?.redraw();
});

// The address names a room, so the link to the pictures moves the focus instead of the address.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  const pictures = document.getElementById("view") ?? main;
  pictures.tabIndex = -1;
  pictures.focus();
});

addEventListener("hashchange", navigate);

try {
  list = await rooms();
  const link = (name, title) => element("a", { href: `#${name}`, "data-room": name }, title);
  document.getElementById("rooms").replaceChildren(...list.map((info) => link(info.name, info.title)), link(RESULTS, "Results"));
  if (!window.Plotly) await new Promise((done) => document.querySelector('script[src="/plotly.js"]').addEventListener("load", done));
  navigate();
} catch (error) {
  main.replaceChildren(element("p", { class: "message", role: "alert" }, error.message));
}
watchStatus();
