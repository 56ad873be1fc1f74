// Polls the page's own JSON twin with the reader's key and draws it. Text only ever becomes text, never markup.
import { drawStudies, drawStudy, element } from "/static/drawing.js";

const POLL_MILLISECONDS = 3000;
const page = document.getElementById("page");
const draw = { studies: drawStudies, study: drawStudy }[page.dataset.page];

async function poll() {
  const key = sessionStorage.getItem("wardround-key");
  if (!key) return askForKey("");
  let answer;
  try {
    answer = await fetch(`${location.pathname}.json`, { headers: { Authorization: `Bearer ${key}` }, cache: "no-store" });
  } catch {
    return again("the coordinator does not answer");
  }
  const body = await answer.json();
  if (answer.status === 401 || answer.status === 403) return askForKey(body.title);
  if (!answer.ok) return again(body.detail);
  page.replaceChildren(...draw(body));
  again("");
}

function again(complaint) {
  if (complaint) page.prepend(element("p", { class: "bad" }, complaint));
  setTimeout(poll, POLL_MILLISECONDS);
}

function askForKey(complaint) {
  sessionStorage.removeItem("wardround-key");
  const input = element("input", { type: "password", autocomplete: "off", placeholder: "a viewer's key: wrk_…" });
  const form = element("form", {}, input, element("button", {}, "Show"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem("wardround-key", input.value.trim());
    poll();
  });
  page.replaceChildren(element("h1", {}, "Wardround"), element("p", { class: "bad" }, complaint), form);
}

poll();
