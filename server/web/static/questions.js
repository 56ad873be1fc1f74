// All questions of a study as a list, and one of them with its answer.
import { NOT_CHARGED } from "/reasons.js";
import { Twin } from "/static/coordinator.js";
import { cell, element, phrase, redraw, section, table } from "/static/elements.js";
import { count, shareWords, upward, when } from "/static/numbers.js";
import { questionView } from "/static/question.js";
import { complain } from "/static/shell.js";
import { kindName, limitName, queryState, queryTitle } from "/static/words.js";

const PAGE = matchMedia("(max-width: 46rem)").matches ? 8 : 25;
export const addressOf = (query) => `#question-${query}`;

export function questionsTab(name) {
  const node = element("div", {}), list = questionsList(), twin = new Twin();
  let model = null, one = null, number = null, read = null;

  const draw = async () => {
    if (number === null) return list.update(model);
    // Whoever has chosen another one meanwhile is not shown this one.
    const wanted = number, known = model.queries.find((query) => query.number === wanted), stamp = JSON.stringify([wanted, known]);
    if (known && stamp !== read) {
      const found = await readOne(twin, name, wanted);
      if (wanted !== number) return;
      if (found !== null) one = found;
      read = stamp;
    }
    view.update(model, one?.number === wanted ? one : null, Boolean(known));
  };
  const view = questionView(name);
  const show = (wanted) => {
    const moved = wanted !== number || node.childElementCount === 0;
    number = wanted;
    if (moved) node.replaceChildren(wanted === null ? list.node : view.node);
    if (model) draw();
    return moved;
  };
  const update = (now) => {
    model = now;
    draw();
  };
  return { node, show, update };
}

// null: nothing is new, or it was not there.
async function readOne(twin, name, number) {
  try {
    return await twin.read(`/dashboard/${name}/queries/${number}.json`);
  } catch (error) {
    complain(error.message);
    return null;
  }
}

function questionsList() {
  const head = element("p", { class: "note" }), list = element("div", {}), pager = element("nav", { class: "pager", "aria-label": "Pages of questions" });
  let page = 0, model = null;
  const draw = () => {
    const newest = model.queries.toReversed(), pages = Math.max(1, Math.ceil(newest.length / PAGE));
    page = Math.min(page, pages - 1);
    const shown = newest.slice(page * PAGE, (page + 1) * PAGE);
    redraw(head, [model.queries.length, model.limits], () => phrase(summary(model)));
    redraw(list, [shown, model.limits, model.rounds.at(-1)?.state], () => (shown.length ? rows(model, shown) : nothing(model)));
    redraw(pager, [page, pages], () => (pages > 1 ? turners() : []));
  };
  const turn = (by) => () => {
    page += by;
    draw();
  };
  const turners = () => [
    element("button", { type: "button", class: "plain", disabled: page === 0, onclick: turn(-1) }, "Newer"),
    element("span", {}, `Page ${page + 1}`),
    element("button", { type: "button", class: "plain", disabled: (page + 1) * PAGE >= model.queries.length, onclick: turn(1) }, "Older"),
  ];
  const node = section("questions", "Questions about the patients", head, list, pager);
  const update = (now) => {
    model = now;
    draw();
  };
  return { node, update };
}

function summary(model) {
  const most = model.study.settings.statistics.max_queries;
  const spent = model.limits.map((limit) => `${model.wordsOf(limit).progress ?? `ε ${upward(limit.spent)} of ${limit.epsilon} spent`} (${limitName(limit)})`).join(" and ");
  return `${count(model.queries.length, "question")}, at most ${most} are charged. So far: ${spent}. The same question again is the stored answer and costs nothing.`;
}

function nothing(model) {
  return element("p", { class: "empty" }, ...phrase(`There is no question yet. A lead or an asker asks with \`wardround ask ${model.study.study} question.toml\`. \`wardround query template KIND\` writes such a file.`));
}

function rows(model, shown) {
  const lines = shown.map((query) => {
    const [tone, state, sentence] = queryState(query);
    return [
      element("a", { href: addressOf(query.number) }, `${query.number}. ${queryTitle(query)}`),
      cell({}, kindName(query.document.question.kind)),
      cell({}, element("span", { class: `badge ${tone}` }, state), query.state === "waiting" ? element("span", { class: "note" }, sentence) : null),
      ...model.limits.map((limit) => cell({ class: "number" }, costWords(model, query, limit))),
      cell({ class: "number" }, element("time", { datetime: query.created_at }, when(query.created_at))),
    ];
  });
  return table("Questions, the newest first", ["Question", "Kind", "State", ...model.limits.map((limit) => `Cost, ${limitName(limit)}`), "Asked"], lines);
}

export function costWords(model, query, limit) {
  const spent = model.spentBy(query, limit);
  if (spent === null) return NOT_CHARGED;
  const share = shareWords(query, limit);
  if (share !== null) return share;
  if (limit.progress) return "by patients who are set aside";
  return `+ ${upward(spent[1] - spent[0])} (${upward(spent[0])} → ${upward(spent[1])})`;
}
