// The page of one study: read once as a whole, then only what is new.
import { byHospital } from "/static/by_hospital.js";
import { cards } from "/static/cards.js";
import { Twin, ask } from "/static/coordinator.js";
import { element, phrase, redraw, section, table } from "/static/elements.js";
import { follow } from "/static/live.js";
import { laterPatients } from "/static/later_patients.js";
import { hospitals } from "/static/hospitals.js";
import { lossCharts } from "/static/loss.js";
import { meanings } from "/static/meaning.js";
import { StudyModel } from "/static/model.js";
import { ago, when } from "/static/numbers.js";
import { proof } from "/static/proof.js";
import { questionsTab } from "/static/questions.js";
import { roundsTable } from "/static/rounds.js";
import { complain, tell, title } from "/static/shell.js";
import { synthesisTab } from "/static/synthesis.js";
import { stateOf } from "/static/words.js";

export function openStudy(place, wrongKey) {
  const name = decodeURIComponent(location.pathname.split("/").pop());
  const model = new StudyModel(), twin = new Twin();
  let parts = null;
  title(name);
  place.replaceChildren(element("p", { class: "empty" }, "Loading the study …"));

  const refresh = async () => {
    try {
      if (await readNews(name, model, twin)) {
        complain("");
        parts ??= build(place, name, model);
        parts.update(model);
      }
    } catch (error) {
      if (error.wrongKey) return void wrongKey(`${error.title}: ${error.message}`);
      if (error.unknown) return void place.replaceChildren(element("h1", {}, "No such study"), element("p", {}, "There is no study of this name. Check its spelling."), element("p", {}, element("a", { href: "/dashboard" }, "All studies")));
      complain(error.message);
    }
    return true;
  };
  follow({ refresh, tell, streamFrom: () => (model.version ? `/v1/studies/${name}/events?after=${model.version}` : null) });
}

// True if something is new, or nothing went wrong after something did.
async function readNews(name, model, twin) {
  const page = await twin.read(model.path(name));
  if (page === null) return void complain("");
  const { version } = page;
  model.merge(page, model.version);
  for (let next = page.next; next !== null; ) {
    const more = await (await ask(model.path(name, next))).json();
    model.merge(more, model.version);
    next = more.next;
  }
  if (model.asks && model.budget !== null) await readQueries(name, model);
  model.version = version;
  return true;
}

// From the first that may have changed: an answer stays what it is.
async function readQueries(name, model) {
  const first = model.firstOpenQuery, found = [];
  for (let after = first - 1; after !== null; ) {
    const page = await (await ask(`/dashboard/${name}/queries.json?after=${after}`)).json();
    found.push(...page.queries);
    model.laterPatients = page.later_patients;
    after = page.next;
  }
  model.mergeQueries(first, found);
}

// Tabs where questions may be asked; what is not looked at is not drawn, since nothing out of sight has a width.
function build(place, name, model) {
  const top = heading(), tabs = tabBar(), own = element("div", {}), asked = questionsTab(name);
  const made = model.study.settings.synthesis ? synthesisTab(name) : null;
  const parts = [cards()];
  // No numbers where the database is not what was signed: they may be anybody's.
  if (model.budget !== null) parts.push(lossCharts(), meanings(), byHospital(name), laterPatients(), agreement(name), hospitals(name), proof(name), roundsTable(name));
  own.append(...parts.map((part) => part.node));
  const several = model.asks && model.budget !== null;
  place.replaceChildren(top.node, ...(several ? [tabs.node] : []), own, ...(several ? [asked.node] : []), ...(several && made ? [made.node] : []));
  let current = "study", known = model;
  const update = (now) => {
    known = now;
    top.update(now);
    tabs.update(now, current);
    if (current === "questions") asked.update(now);
    else if (current === "synthesis") made.update(now);
    else for (const part of parts) part.update(now);
  };
  const turn = (moved) => {
    // Other fragments, such as the link past the bar, stay where they are.
    const found = location.hash.match(/^#(study|questions|synthesis|question-(\d+))?$/);
    if (!several || found === null) return;
    current = found[2] ? "questions" : (found[1] ?? "study");
    if (current === "synthesis" && made === null) current = "study";
    own.hidden = current !== "study";
    asked.node.hidden = current !== "questions";
    if (made) made.node.hidden = current !== "synthesis";
    if (current === "questions") asked.show(found[2] ? Number(found[2]) : null);
    if (moved) window.scrollTo(0, 0);
    update(known);
  };
  addEventListener("hashchange", () => turn(true));
  turn(false);
  return { update };
}

function tabBar() {
  const node = element("nav", { class: "tabs", "aria-label": "Parts of the study" });
  const update = (model, current) => redraw(node, [current, model.queries.length], () => [
    tab("#study", "Budget and rounds", current === "study"), tab("#questions", `Questions (${model.queries.length})`, current === "questions"),
    model.study.settings.synthesis ? tab("#synthesis", "Synthetic records", current === "synthesis") : null,
  ].filter(Boolean));
  return { node, update };
}

const tab = (href, text, current) => element("a", { href, "aria-current": current ? "page" : null }, text);

function heading() {
  const node = element("header", { class: "top" });
  const update = ({ study, budget, rounds }) => {
    title(study.title || study.study);
    const [tone, state, sentence] = stateOf(study, budget?.limits);
    const last = rounds.at(-1);
    redraw(node, [study.title, state, sentence, last?.round, last?.state, budget === null], () => [
      element("p", { class: "crumbs" }, element("a", { href: "/dashboard" }, "All studies"), ` / ${study.study}`),
      element("h1", {}, study.title || study.study),
      element("p", { class: "state" }, element("span", { class: `badge ${tone}` }, state), last ? (last.query ? ` Question ${last.query}, asked in round ${last.round}, begun ` : ` Round ${last.round}, begun `) : " Opened ", time(last?.started_at ?? study.created_at)),
      sentence ? element("p", { class: `notice ${tone}` }, ...phrase(sentence)) : null,
    ].filter(Boolean));
  };
  return { node, update };
}

const time = (text) => element("time", { datetime: text, title: ago(text) }, when(text));

// The settings in words do not change while a study lives: they are read once.
function agreement(name) {
  const list = element("div", {});
  const lacking = element("div", {});
  const frozen = element("pre", { tabindex: "0", "aria-label": "All settings as JSON" }), digest = element("p", { class: "note long" });
  const node = section("terms", "What hospitals agreed to, and who sees what", list, lacking,
    element("details", {}, element("summary", {}, "All settings, as they were frozen"), digest, frozen));
  const update = ({ study }) => redraw(digest, study.settings_sha256, () => {
    frozen.textContent = JSON.stringify(study.settings, null, 2);
    if (letsColumnsLack(study.settings)) showLacking(name, lacking);
    return `SHA-256 of their canonical JSON, which every assignment names: ${study.settings_sha256}`;
  });

  ask(`/dashboard/${name}/terms.json`).then(async (answer) => {
    const { sentences } = await answer.json();
    const groups = Map.groupBy(sentences, (one) => one.about);
    list.replaceChildren(element("dl", { class: "terms" }, ...[...groups].flatMap(([about, found]) => [
      element("dt", {}, about), ...found.map((one) => element("dd", {}, one.text)),
    ])));
  }).catch((error) => list.replaceChildren(element("p", { class: "note" }, error.message)));
  return { node, update };
}

const letsColumnsLack = (settings) => Object.entries(settings.training?.task_parameters ?? {}).some(([key, text]) =>
  key.startsWith("column.") && String(text).split(";").some((part) => part.trim() === "site-may-lack"));

// Read once: hospitals tell it when they join.
function showLacking(name, node) {
  ask(`/v1/studies/${name}/lacking-columns`).then(async (answer) => {
    const rows = (await answer.json()).hospitals.map((one) => [one.client, one.columns === null ? "not told" : one.columns.join(", ") || "none"]);
    node.replaceChildren(rows.length ? table("Columns that hospitals lack", ["Hospital", "Lacks"], rows) : "");
  }).catch((error) => node.replaceChildren(element("p", { class: "note" }, error.message)));
}
