// Elements and their text. Text only ever becomes text, never markup.

// Columns that a phone has room for.
const MOST_COLUMNS = 3;

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

const shown = new WeakMap();

// Draws `make()` into `place` if `what` it is made of has changed. What stays keeps its focus and its selection.
export function redraw(place, what, make) {
  const now = JSON.stringify(what);
  if (shown.get(place) === now) return;
  shown.set(place, now);
  place.replaceChildren(...[make()].flat());
}

// A part of a page with a heading that assistive technology lists.
export function section(id, title, ...children) {
  return element("section", { id, "aria-labelledby": `${id}-title` }, element("h2", { id: `${id}-title` }, title), ...children);
}

// A table that scrolls sideways by itself on a narrow screen; focusable, so that the keyboard can scroll it. With
// many columns it shows each row as a list of named values there instead.
export function table(caption, head, rows) {
  const stacks = head.length > MOST_COLUMNS;
  const named = (place) => (stacks ? { "data-name": head[place] } : {});
  const asCell = (value) => (value instanceof Cell ? value : cell({}, value));
  const heads = head.map((name) => element("th", { scope: "col" }, name));
  const body = rows.map((values) => {
    const [first, ...others] = values;
    return element("tr", {}, element("th", { scope: "row", ...named(0) }, first), ...others.map((value, place) => asCell(value).made("td", named(place + 1))));
  });
  return element("div", { class: stacks ? "wide stacks" : "wide", tabindex: "0", role: "region", "aria-label": caption },
    element("table", {}, element("caption", { class: "unseen" }, caption), element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...body)));
}

class Cell {
  constructor(attributes, children) {
    Object.assign(this, { attributes, children });
  }
  made(kind, more) {
    return element(kind, { ...this.attributes, ...more }, ...this.children);
  }
}

export const cell = (attributes, ...children) => new Cell(attributes, children);

// `Names` between backticks as code, the rest as it is.
export const phrase = (text) => text.split("`").map((part, place) => (place % 2 ? element("code", {}, part) : part));

// Hands the reader a file that was made in this tab.
export function save(name, blob) {
  const address = URL.createObjectURL(blob);
  element("a", { href: address, download: name }).click();
  // Not at once: the browser reads it after the click.
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
