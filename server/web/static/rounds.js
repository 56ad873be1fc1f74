// All rounds, newest first, a page at a time; abandoned rounds in a row of one reason are one line.
import { cell, element, phrase, redraw, save, section, table } from "/static/elements.js";
import { entryOf, placeOf, spentOf } from "/static/model.js";
import { count, shareWords, upward, when } from "/static/numbers.js";
import { quoted } from "/static/answer_rows.js";
import { addressOf } from "/static/questions.js";
import { limitName, queryTitle, reasonWords, roundState } from "/static/words.js";

// Few on a phone, where every round takes several lines.
const PAGE = matchMedia("(max-width: 46rem)").matches ? 8 : 25;
const KINDS = { all: "All", released: "Released", nothing: "Failed", open: "Under way" };
const isNothing = (round) => round.state === "abandoned" || round.state === "stopped";
const FITS = { all: () => true, released: (round) => round.state === "released", nothing: isNothing, open: (round) => round.ended_at === null };

export function roundsTable(name) {
  const choice = { text: "", kind: "all", page: 0 };
  const list = element("div", {}), pager = element("nav", { class: "pager", "aria-label": "Pages of rounds" });
  const summary = element("p", { class: "note", role: "status" });
  let model = null;
  const draw = () => {
    const groups = grouped(model.rounds.filter((round) => FITS[choice.kind](round) && mentions(round, choice.text)).toReversed());
    const pages = Math.max(1, Math.ceil(groups.length / PAGE));
    choice.page = Math.min(choice.page, pages - 1);
    const shown = groups.slice(choice.page * PAGE, (choice.page + 1) * PAGE);
    redraw(list, [shown, model.limits.map(limitName), titles(model, shown)], () => (shown.length ? rows(model, shown) : element("p", { class: "empty" }, model.rounds.length ? "No round fits." : "No round has begun.")));
    redraw(summary, groups.length, () => (choice.text || choice.kind !== "all" ? `${count(groups.length, "line")} found` : ""));
    redraw(pager, [choice.page, pages], () => (pages > 1 ? turners(choice, pages, draw) : []));
  };
  const change = (field) => (event) => {
    Object.assign(choice, { [field]: event.target.value, page: 0 });
    draw();
  };
  const node = section("rounds", "Rounds, with what each cost",
    element("div", { class: "controls" },
      element("label", { class: "choice" }, "Find a round ", element("input", { type: "search", placeholder: "12, or a word", autocomplete: "off", oninput: change("text") })),
      element("label", { class: "choice" }, "Which ", element("select", { onchange: change("kind") }, ...Object.entries(KINDS).map(([value, text]) => element("option", { value }, text)))),
      element("button", { type: "button", class: "plain", onclick: () => save(`${name}-rounds.csv`, csv(model)) }, "Download as CSV")),
    summary, list, pager);
  const update = (now) => {
    model = now;
    draw();
  };
  return { node, update };
}

function turners(choice, pages, draw) {
  const turn = (by) => () => {
    choice.page += by;
    draw();
  };
  return [
    element("button", { type: "button", class: "plain", disabled: choice.page === 0, onclick: turn(-1) }, "Newer"),
    element("span", {}, `Page ${choice.page + 1} of ${pages}`),
    element("button", { type: "button", class: "plain", disabled: choice.page === pages - 1, onclick: turn(1) }, "Older"),
  ];
}

function mentions(round, text) {
  if (!text) return true;
  if (/^\d+$/.test(text)) return String(round.round) === text;
  const words = [roundState(round), round.reason ?? "", reasonWords(round.reason) ?? ""].join(" ").toLowerCase();
  return words.includes(text.toLowerCase());
}

// Newest first: [[round, …], …]; only abandoned rounds of one reason that follow each other share a line.
export function grouped(rounds) {
  const groups = [];
  for (const round of rounds) {
    const last = groups.at(-1)?.at(-1);
    const same = last && last.state === "abandoned" && round.state === "abandoned" && last.reason === round.reason && last.query === round.query && last.round === round.round + 1;
    if (same) groups.at(-1).push(round);
    else groups.push([round]);
  }
  return groups;
}

function rows(model, groups) {
  const spent = (group) => model.limits.map((limit) => cell({ class: "number" }, upward(spentOf(group[0], limit) ?? null), added(model, group[0], limit)));
  const lines = groups.map((group) => [
    group.length > 1 ? `${group.at(-1).round}–${group[0].round}` : String(group[0].round),
    what(model, group), cell({ class: "number" }, answered(group)), ...spent(group), ...(model.trains ? [measured(group[0])] : []), ...(adapts(model) ? [cell({ class: "number" }, nextNorm(group[0]))] : []), element("time", { datetime: group[0].ended_at ?? group[0].started_at }, when(group[0].ended_at ?? group[0].started_at)),
  ]);
  return table("Rounds, the newest first", ["Round", "What happened", "Hospitals", ...model.limits.map((limit) => `ε, ${limitName(limit)}`), ...(model.trains ? ["Measured"] : []), ...(adapts(model) ? ["Next clip norm"] : []), "When"], lines);
}

// Of the queries that these rounds answer.
const titles = (model, groups) => groups.flat().filter((round) => round.query).map((round) => titleOf(model, round));
const titleOf = (model, { query }) => `Question ${query}${model.queries[query - 1] ? `: ${queryTitle(model.queries[query - 1])}` : ""}`;

function added(model, round, limit) {
  const query = model.queries[round.query - 1], share = query ? shareWords(query, limit) : null;
  if (share !== null && !limit.progress && round.spent !== null) return element("span", { class: "note" }, ` ${share}`);
  const place = placeOf(model, round, limit);
  if (place !== null) return element("span", { class: "note" }, ` ${place}`);
  const cost = model.cost(round, limit);
  return cost === null ? null : element("span", { class: "note" }, ` + ${upward(cost)}`);
}

function what(model, group) {
  const happened = outcome(group);
  if (!group[0].query) return happened;
  return element("span", {}, element("a", { href: addressOf(group[0].query) }, titleOf(model, group[0])), " ", happened);
}

function outcome(group) {
  const [newest] = group;
  if (newest.query && newest.state === "released") return "answered";
  if (!isNothing(newest) || newest.reason === null) return roundState(newest);
  const [happened, ...doing] = reasonWords(newest.reason).split(/(?<=\.) /);
  const many = group.length > 1 ? `${group.length} rounds ${roundState(newest)}` : roundState(newest);
  return element("span", {}, element("strong", {}, `${many}: ${happened} `), ...phrase(doing.join(" ")));
}

function answered([newest]) {
  if (newest.answers === null) return "not shown";
  const all = Object.values(newest.answers).reduce((sum, some) => sum + some);
  return `${newest.answers.received} of ${all}`;
}

const measured = (round) => Object.entries(round.metrics?.values ?? {}).map(([name, value]) => `${name} ${value.toFixed(4)}`).join(", ");

// The noised bits of a round move the clip norm of the next one.
const adapts = (model) => Boolean(model.study.settings.privacy.adaptive_clip);
const nextNorm = (round) => (round.clip_norm === undefined ? "" : String(Number(round.clip_norm.toPrecision(3))));

function csv(model) {
  const counted = model.limits.flatMap((limit) => ["steps", "squares"].filter((part) => limit.progress?.[part]).map((part) => [limit, part]));
  const head = ["round", "question", "state", "reason", "started", "ended", "received", "refused", "missing", "waiting", ...model.limits.map((limit) => `epsilon ${limitName(limit)}`), ...counted.map(([limit, part]) => `${part} ${limitName(limit)}`), "measured", ...(adapts(model) ? ["next clip norm"] : [])];
  const lines = model.rounds.map((round) => [
    round.round, round.query, round.state, round.reason, round.started_at, round.ended_at,
    ...["received", "refused", "missing", "waiting"].map((kind) => round.answers?.[kind]),
    ...model.limits.map((limit) => spentOf(round, limit)), ...counted.map(([limit, part]) => entryOf(round, limit)?.[part]), measured(round), ...(adapts(model) ? [round.clip_norm] : []),
  ]);
  return new Blob([[head, ...lines].map((line) => line.map(quoted).join(",")).join("\r\n")], { type: "text/csv" });
}
