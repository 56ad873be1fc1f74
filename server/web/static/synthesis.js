// Synthetic records beside the released answers that they are made of, and how far the questions have come.
import { ask } from "/static/coordinator.js";
import { cell, element, phrase, redraw, save, section, table } from "/static/elements.js";
import { picture } from "/static/question.js";
import { count, number } from "/static/numbers.js";
import { limitName, queryState } from "/static/words.js";
import { costWords } from "/static/questions.js";

// More cells than this beside each other are no picture.
const MOST_CELLS = 400;
// Never a negative zero.
const tenths = (share) => (Math.round(1000 * share) / 10 + 0).toFixed(1);
const percent = (share) => (share === null ? "–" : `${tenths(share)} %`);

export function synthesisTab(name) {
  const node = element("div", {}), state = element("div", {}), compared = element("div", {});
  const one = choice("Column"), other = choice("Crossed with");
  let known = null, read = null;
  const tools = element("form", { class: "choices", onsubmit: (event) => event.preventDefault() }, one.node, other.node);
  node.append(
    section("synthesis", "Synthetic records", state),
    section("compared", "Released answers and synthetic records", tools, compared),
    section("records", "What a synthetic record is", ...meaning(name)),
  );

  const draw = async () => {
    const wanted = [one.value, other.value];
    if (!wanted[0]) return;
    const query = new URLSearchParams({ column: wanted[0], ...(wanted[1] ? { by: wanted[1] } : {}) });
    const found = await guarded(compared, async () => (await ask(`/dashboard/${name}/synthesis/shares.json?${query}`)).json());
    if (found && wanted[0] === one.value && wanted[1] === other.value) redraw(compared, [wanted, found], () => comparison(name, wanted, found));
  };
  one.listen(() => { other.fill(["", ...known.columns.filter((column) => column !== one.value)], "no other column"); draw(); });
  other.listen(draw);

  const update = async (model) => {
    const stamp = JSON.stringify(model.queries.map((query) => query.state));
    if (stamp !== read) {
      read = stamp;
      const found = await guarded(state, async () => (await ask(`/dashboard/${name}/synthesis.json`)).json());
      if (!found) return void (read = null);
      if (known === null) {
        one.fill(found.columns);
        other.fill(["", ...found.columns.slice(1)], "no other column");
      }
      known = found;
      draw();
    }
    if (known) redraw(state, [known, model.limits], () => chain(model, known));
  };
  return { node, update };
}

async function guarded(place, read) {
  try {
    return await read();
  } catch (error) {
    redraw(place, error.message, () => element("p", { class: "notice care" }, error.message));
    return null;
  }
}

function choice(label) {
  const select = element("select", {});
  const fill = (names, empty = "") => {
    const before = select.value;
    select.replaceChildren(...names.map((one) => element("option", { value: one }, one || empty)));
    if (names.includes(before)) select.value = before;
  };
  return { node: element("label", {}, label, " ", select), fill, listen: (act) => select.addEventListener("change", act), get value() { return select.value; } };
}

function chain(model, known) {
  const done = known.answered.length, next = model.queries.find((query) => query.sha256 === known.next_sha256);
  const words = known.next_title === null ? `All ${count(done, "question")} of the rule are answered: there are synthetic records.`
    : next ? `Question ${done + 1} of ${known.stages}: ${queryState(next)[1]}. ${known.next_title}.`
    : done === 0 ? `No question has been asked. A lead or an asker begins with \`wardround synth ${model.study.study} -o synthetic.parquet\`.`
    : `${done} of ${known.stages} questions are answered. The next one is “${known.next_title}”.`;
  const lines = known.answered.map((one) => {
    const query = model.queries.find((each) => each.number === one.query);
    return [element("a", { href: `#question-${one.query}` }, one.title), cell({ class: "number" }, String(one.hospitals)),
      ...model.limits.map((limit) => cell({ class: "number" }, query ? costWords(model, query, limit) : "–"))];
  });
  return [
    element("p", {}, ...phrase(words)),
    lines.length ? table("Answered questions of the synthesis", ["Question", "Hospitals", ...model.limits.map((limit) => `Cost, ${limitName(limit)}`)], lines) : null,
    element("p", { class: "note" }, `Each of the ${known.columns.length} columns is crossed with “${known.outcome}”. The pictures are made of ${number(known.shown_rows)} synthetic records, which cost nothing more.`),
  ].filter(Boolean);
}

function comparison(name, [column, by], found) {
  if (found.synthetic === null) return element("p", { class: "empty" }, "There are no synthetic records before all questions are answered.");
  return by ? crossed(name, column, by, found) : single(name, column, found);
}

function single(name, column, { labels: [labels], released, interval, synthetic }) {
  const rows = labels.flatMap((label, place) => [
    ...(released ? [[label, "released", released[place][0], released[place][0] - interval, released[place][0] + interval]] : []),
    [label, "synthetic", synthetic[place][0], null, null],
  ]);
  const drawn = {
    title: `Share of patients by ${column}`, columns: [column, "from", "share", "low", "high"], rows,
    plot: { kind: "bars", x: column, y: "share", low: "low", high: "high", by: "from", panel: null },
  };
  const lines = labels.map((label, place) => [label, ...figures(released?.[place][0] ?? null, interval, synthetic[place][0])]);
  return [
    picture(drawn),
    element("p", { class: "note" }, "The line across a released bar is the 95 % interval of its noise. A synthetic bar outside of it is no error: all released answers are made to fit together."),
    table(drawn.title, [column, "Released", "95 % of noise", "Synthetic"], lines),
    download(`${name}-${column}`, [column, "released", "interval", "synthetic"], labels.map((label, place) => [label, released?.[place][0] ?? "", interval, synthetic[place][0]])),
  ];
}

const figures = (released, interval, synthetic) => [
  cell({ class: "number" }, percent(released)), cell({ class: "number" }, released === null ? "–" : `± ${percent(interval)}`), cell({ class: "number" }, percent(synthetic)),
];

function crossed(name, column, by, { labels, released, interval, synthetic }) {
  const [first, second] = labels;
  const lines = first.flatMap((label, row) => second.map((other, place) => [label, other, released?.[row][place] ?? "", interval, synthetic[row][place]]));
  const saved = download(`${name}-${column}-${by}`, [column, by, "released", "interval", "synthetic"], lines);
  if (lines.length > MOST_CELLS) return [element("p", { class: "note" }, `${number(lines.length)} cells are no picture. The file has them.`), saved];
  // One scale for both tables: colours are compared.
  const top = Math.max(...[released ?? [], synthetic].flat(2), 0);
  return [
    element("div", { class: "pair" },
      released ? heat("Released", column, by, labels, released, top) : element("p", { class: "empty" }, "No released answer crosses these two columns. The synthetic records follow from others."),
      heat("Synthetic", column, by, labels, synthetic, top)),
    element("p", { class: "note" }, released ? `Percent of all patients, on one scale. The noise of a released cell is within ± ${percent(interval)} in 95 % of cases.` : "Percent of all patients."),
    saved,
  ];
}

function heat(title, column, by, [first, second], values, top) {
  const shade = (share) => {
    const node = element("td", { class: "heat" }, tenths(share));
    // Through the object model: an attribute would be an inline style, which the policy forbids.
    node.style.setProperty("--share", `${top > 0 ? Math.max(0, Math.min(100, (100 * share) / top)) : 0}%`);
    return node;
  };
  const caption = `${title}: ${column} by ${by}, percent of all patients`;
  return element("figure", { class: "heats" }, element("figcaption", {}, title),
    element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": caption },
      element("table", {}, element("caption", { class: "unseen" }, caption),
        element("thead", {}, element("tr", {}, element("th", { scope: "col" }, `${column} \\ ${by}`), ...second.map((label) => element("th", { scope: "col" }, label)))),
        element("tbody", {}, ...first.map((label, row) => element("tr", {}, element("th", { scope: "row" }, label), ...second.map((_, place) => shade(values[row][place]))))))));
}

const quoted = (value) => (typeof value === "number" ? String(value) : `"${value.replace(/^([=+\-@\t\r])/, "'$1").replaceAll('"', '""')}"`);

function download(name, head, rows) {
  const text = [head, ...rows].map((row) => `${row.map(quoted).join(",")}\r\n`).join("");
  return element("p", {}, element("button", { type: "button", class: "plain", onclick: () => save(`${name}.csv`, new Blob([text], { type: "text/csv" })) }, "Download these numbers as CSV"));
}

const meaning = (name) => [
  element("p", {}, "No row is a patient. Each is drawn from a model of the released answers, which are noised sums over all hospitals. What holds for these answers holds for every record made of them: the budget above covers them, and more records cost nothing."),
  element("p", {}, "Records show the columns and pairs that were asked. Rare combinations, and dependences among three columns, may be missing or wrong. A naive analysis states errors that are too small."),
  element("p", {}, ...phrase(`Download: \`wardround synth ${name} -o synthetic.parquet\` writes the file from the signed answers. \`wardround synth verify synthetic.parquet\` makes the same records again and compares them.`)),
];
