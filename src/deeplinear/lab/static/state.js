// The state of the page stands in its address: #room/view?name=value, values as JSON, what is default left out.

const plain = (text) => {
  try { return decodeURIComponent(text); } catch { return ""; }
};

export function read() {
  const [path, query = ""] = location.hash.slice(1).split("?");
  const [room = "", view = ""] = path.split("/").map(plain);
  const values = {};
  for (const [name, text] of new URLSearchParams(query)) {
    try { values[name] = JSON.parse(text); } catch { values[name] = text; /* a broken link: whoever takes the value says so */ }
  }
  return { room, view, values };
}

export function address(room, view, values, defaults) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (JSON.stringify(value) !== JSON.stringify(defaults[name])) query.set(name, JSON.stringify(value));
  }
  const text = query.toString();
  return `#${encodeURIComponent(room)}/${encodeURIComponent(view)}${text ? `?${text}` : ""}`;
}
