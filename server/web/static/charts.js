// Draws charts with Vega-Lite. A specification is a plain JSON file; only its data and its looks come from here.
import { element } from "/static/elements.js";

// `null` where the coordinator has no bundle of the library: tables show the same numbers.
const address = document.documentElement.dataset.charts || null;
export const chartsAreHere = address !== null;

let library = null;

function load() {
  library ??= new Promise((resolve, reject) => {
    document.head.append(element("script", { src: address, onload: () => resolve(window.vegaEmbed), onerror: () => reject(new Error("the charts could not be loaded")) }));
  });
  return library;
}

// Custom properties as they are: a picture changes its colours with the theme, and is light on paper.
const [INK, SOFT, LINE] = ["var(--ink)", "var(--soft)", "var(--line)"];
const CONFIG = {
  // The picture is named as a whole; its parts would be read one by one.
  aria: false,
  background: "transparent",
  font: "system-ui, sans-serif",
  view: { stroke: null },
  axis: { labelColor: SOFT, titleColor: SOFT, gridColor: LINE, domainColor: LINE, tickColor: LINE, labelFontSize: 12, labelOverlap: true, labelSeparation: 8, titleFontSize: 12, titleFontWeight: 400 },
  text: { color: INK, fontSize: 12 },
  rule: { color: SOFT },
  legend: { labelColor: INK, labelFontSize: 12, labelLimit: 220, titleColor: SOFT, titleFontSize: 12, titleFontWeight: 400 },
  range: { category: [1, 2, 3, 4].map((number) => `var(--line-${number})`) },
};

export class Chart {
  #view = null;
  #place;
  #specification;
  #rows = {};
  #busy = Promise.resolve();
  #seen = false;
  #waiting = null;
  #words;

  // words: what the picture shows, for whoever does not see it
  // adapt: changes the specification to the data's form
  constructor(place, specification, words, adapt = (plain) => plain) {
    Object.assign(place, { className: "chart" });
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", words);
    this.#place = place;
    this.#words = words;
    this.#specification = fetch(specification).then((answer) => answer.json()).then(adapt);
    new IntersectionObserver((all) => {
      this.#seen = all.at(-1).isIntersecting;
      if (this.#seen && this.#waiting) this.show(this.#waiting);
    }, { rootMargin: "40px" }).observe(place);
  }

  // The view stays; only data that changed are handed to it. One after another, whatever is asked meanwhile.
  show(rows) {
    // Drawn once in any case; out of sight, news waits until somebody comes to look.
    const later = this.#view !== null && !this.#seen;
    this.#waiting = later ? rows : null;
    if (later) return;
    this.#busy = this.#busy.then(() => this.#show(rows)).catch((error) => console.warn("chart:", error.message));
  }

  async #show(rows) {
    if (this.#view === null) {
      this.#rows = rows;
      return this.#embed();
    }
    const changed = Object.entries(rows).filter(([name, data]) => JSON.stringify(data) !== JSON.stringify(this.#rows[name]));
    this.#rows = rows;
    if (changed.length === 0) return;
    for (const [name, data] of changed) this.#view.data(name, data.map((row) => ({ ...row })));
    await this.#view.runAsync();
  }

  async #embed() {
    const [embed, specification] = await Promise.all([load(), this.#specification]);
    const datasets = Object.fromEntries(Object.entries(this.#rows).map(([name, data]) => [name, data.map((row) => ({ ...row }))]));
    const { view } = await embed(this.#place, { ...specification, description: this.#words, datasets }, {
      // An interpreter: the library's own compiler would need eval, which the policy forbids.
      ast: true,
      renderer: "svg",
      // Errors alone: a chart that has nothing of one kind yet is no reason for a warning.
      logLevel: 1,
      actions: false,
      defaultStyle: false,
      tooltip: { disableDefaultStyle: true },
      config: CONFIG,
    });
    this.#view = view;
    this.#place.querySelector("svg")?.setAttribute("aria-hidden", "true");
  }
}
