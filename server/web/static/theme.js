// Light, dark, or as the reader's system says. The choice is no secret and may outlive the tab.
import { element } from "/static/elements.js";

const NAME = "wardround-theme";
const CHOICES = { auto: "As the system", light: "Light", dark: "Dark" };

const chosen = () => {
  const kept = localStorage.getItem(NAME);
  return kept in CHOICES ? kept : "auto";
};

function apply() {
  document.documentElement.dataset.theme = chosen();
}

export function themeSwitch() {
  const options = Object.entries(CHOICES).map(([value, name]) => element("option", { value, selected: value === chosen() }, name));
  const change = (event) => {
    localStorage.setItem(NAME, event.target.value);
    apply();
  };
  return element("label", { class: "choice" }, "Colours ", element("select", { onchange: change }, ...options));
}

apply();
