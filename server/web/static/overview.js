// All studies at a glance, a page at a time.
import { Twin } from "/static/coordinator.js";
import { cell, element, redraw, table } from "/static/elements.js";
import { follow } from "/static/live.js";
import { ago, count, number, percentLeft, takesQuestions, when } from "/static/numbers.js";
import { complain, tell, title } from "/static/shell.js";
import { limitName, stateOf } from "/static/words.js";

const PAGE = 25;

export function openStudies(place, wrongKey) {
  title("Studies");
  const twin = new Twin();
  const choice = { search: "", before: [], after: null, next: null };
  const list = element("div", { id: "list", "aria-live": "off" });
  const pager = element("nav", { class: "pager", "aria-label": "Pages of studies" });
  let ask = () => {};

  const search = element("input", { id: "search", type: "search", maxlength: "200", autocomplete: "off" });
  search.addEventListener("input", () => {
    Object.assign(choice, { search: search.value.trim(), before: [], after: null });
    ask();
  });
  const turn = (forward) => () => {
    if (forward) choice.before.push(choice.after);
    choice.after = forward ? choice.next : choice.before.pop();
    ask();
  };

  place.replaceChildren(
    element("h1", {}, "Studies"),
    element("p", { class: "lead" }, "How far each study has come, and how much of its privacy budget is left."),
    element("form", { class: "row search", role: "search", onsubmit: (event) => event.preventDefault() }, element("label", { for: "search" }, "Find by name or title"), search),
    list, pager,
  );
  ask = follow({
    refresh: () => refresh(twin, choice, wrongKey, (found) => draw(list, pager, found, choice, turn)),
    streamFrom: () => null,
    tell: (state) => tell(state === "polling" ? "asking" : state),
  });
}

async function refresh(twin, choice, wrongKey, show) {
  const asked = new URLSearchParams({ limit: PAGE });
  if (choice.search) asked.set("search", choice.search);
  if (choice.after) asked.set("after", choice.after);
  try {
    const found = await twin.read(`/dashboard.json?${asked}`);
    complain("");
    if (found !== null) show(found);
  } catch (error) {
    if (error.wrongKey) return void wrongKey(`${error.title}: ${error.message}`);
    complain(error.message);
  }
  return true;
}

function draw(list, pager, found, choice, turn) {
  choice.next = found.next;
  redraw(list, [found, choice.search], () => (found.studies.length ? studies(found.studies) : nothing(choice.search)));
  redraw(pager, [choice.before.length, found.next], () => (choice.before.length || found.next ? [
    element("button", { type: "button", class: "plain", disabled: choice.before.length === 0, onclick: turn(false) }, "Previous"),
    element("span", {}, `Page ${choice.before.length + 1}`),
    element("button", { type: "button", class: "plain", disabled: found.next === null, onclick: turn(true) }, "Next"),
  ] : []));
}

function nothing(search) {
  if (search) return element("p", { class: "empty" }, `No study has “${search}” in its name or title.`);
  return element("p", { class: "empty" }, "There is no study yet. An administrator or a lead opens one with ", element("code", {}, "wardround study create"), ".");
}

function studies(found) {
  const rows = found.map(({ study, limits, last_activity: last, most_rounds: most }) => {
    const [tone, name] = stateOf(study, limits);
    const link = element("a", { href: `/dashboard/${study.study}` }, study.title || study.study);
    return [
      element("span", { class: "name" }, link, study.title ? element("span", { class: "note" }, study.study) : null),
      cell({}, element("span", { class: `badge ${tone}` }, name)),
      cell({}, limits === null ? "not shown" : budget(limits)),
      cell({}, roundsLeft(study, limits), element("span", { class: "note" }, begun(study, most))),
      cell({}, hospitals(study)),
      cell({}, element("time", { datetime: last, title: when(last) }, ago(last))),
    ];
  });
  return table("All studies", ["Study", "State", "Budget left", "Rounds left", "Hospitals", "Last activity"], rows);
}

const protectedLimits = (limits) => limits.filter((limit) => limit.epsilon !== null);

// The limit that has the smallest share left speaks for the study.
function budget(limits) {
  const scarce = protectedLimits(limits).reduce((least, limit) => (percentLeft(limit) < percentLeft(least) ? limit : least));
  const left = percentLeft(scarce), words = takesQuestions(scarce) ? `${left} % for questions` : `${left} %`;
  return element("span", { class: "left" },
    element("meter", { min: 0, max: 100, value: left, "aria-label": `${words} of the budget left, ${limitName(scarce)}` }),
    element("span", {}, words), element("span", { class: "note" }, limitName(scarce)));
}

const trains = (study) => study.settings.training !== undefined;

function begun(study, most) {
  if (!trains(study)) return `${count(study.rounds, "question")} asked`;
  // Questions are rounds, too, and no part of the plan's most.
  if (study.settings.statistics) return `${number(study.rounds)} begun with questions, at most ${number(most)} of training`;
  return `${number(study.rounds)} of at most ${number(most)} begun`;
}

function roundsLeft(study, limits) {
  if (study.stop_reason !== null) return "none: it has ended";
  if (limits === null) return "not shown";
  if (!trains(study)) return "no training";
  const left = Math.min(...protectedLimits(limits).map((limit) => limit.rounds_left_estimate ?? 0));
  if (left === 0 && study.settings.statistics) return "none";
  // Before the first round every one is counted at its worst case.
  return `${study.rounds ? "about" : "at least"} ${count(left, "round")}`;
}

export function hospitals(study) {
  const invited = study.invited ?? null;
  return invited === null ? count(study.clients, "hospital") : `${study.clients} of ${count(invited, "invited hospital")}`;
}
