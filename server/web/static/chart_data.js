// From what is known of a study to the rows that the charts draw. Pure.
import { accuracy, upward } from "/static/numbers.js";
import { limitName } from "/static/words.js";

// ε is smooth: more points would be slower and look the same. The table has every round.
const MOST_POINTS = 64;
// Places that the pointer can be near to: each is an element of its own.
const MOST_PLACES = 40;
export const MOST_BARS = 60;

// Every so-manieth of them, always with the first and the last. By powers of two: a new round moves the last point alone,
// and all of them only when there are twice as many.
export function thinned(items, most = MOST_POINTS) {
  if (items.length <= most) return items;
  const step = 2 ** Math.ceil(Math.log2((items.length - 1) / (most - 1)));
  return items.filter((_, place) => place % step === 0 || place === items.length - 1);
}

// share  draw shares of the limit in percent, so that all limits meet at 100
// hidden keys of limits that are not drawn
// last   only so many of the newest rounds; 0: all
export function lossRows(model, { share, hidden, last }) {
  const limits = model.limits.filter((limit) => !hidden.has(limitName(limit)));
  const scaled = (limit, value) => (share ? (100 * value) / limit.epsilon : value);
  const drawn = limits.map((limit) => [limit, recent(model.history(limit), last)]);
  return {
    spent: drawn.flatMap(([limit, points]) => thinned(points).map(([round, spent]) => ({ round, value: scaled(limit, spent), limit: limitName(limit) }))),
    reserved: drawn.flatMap(([limit, points]) => reservation(model, limit, points, scaled)),
    forecast: drawn.flatMap(([limit, points]) => forecast(model, limit, points, scaled)),
    limits: limitLines(limits, scaled, share),
    hover: hoverRows(drawn, share),
  };
}

const recent = (points, last) => (last ? points.slice(-last) : points);

function reservation(model, limit, points, scaled) {
  if (!model.underWay || !(limit.reserved > 0)) return [];
  const top = limit.spent + limit.reserved;
  return [{ round: model.underWay.round, low: scaled(limit, limit.spent), high: scaled(limit, top), limit: limitName(limit), words: `Round ${model.underWay.round} is under way.\nReserved for it: up to ε ${upward(top)} of ${limit.epsilon} (${limitName(limit)})` }];
}

// A straight line: as if every further round cost what the last one did, and never past the limit.
function forecast(model, limit, points, scaled) {
  const left = model.goesOn ? limit.rounds_left_estimate : 0;
  if (!left || points.length === 0) return [];
  const [round, spent] = points.at(-1);
  const [before, earlier] = points.length > 1 ? points.at(-2) : [round, spent];
  const slope = round > before ? (spent - earlier) / (round - before) : (limit.epsilon - spent) / left;
  const end = Math.min(limit.epsilon, spent + slope * left);
  return [[round, spent], [round + left, end]].map(([at, value]) => ({ round: at, value: scaled(limit, value), limit: limitName(limit) }));
}

// One line for limits of one size, named after all of them.
function limitLines(limits, scaled, share) {
  const found = new Map();
  for (const limit of limits) {
    const value = scaled(limit, limit.epsilon);
    found.set(value, [...(found.get(value) ?? []), limitName(limit)]);
  }
  return [...found].map(([value, names]) => ({ value, name: share ? "limit" : `limit ε ${value}: ${names.join("; ")}` }));
}

function hoverRows(drawn, share) {
  const rows = new Map();
  for (const [limit, points] of drawn) {
    for (const [round, spent] of thinned(points, MOST_PLACES)) {
      const line = `${limitName(limit)}: ε ${upward(spent)} of ${limit.epsilon}, ${upward((100 * spent) / limit.epsilon)} %`;
      const row = rows.get(round) ?? { round, words: `After round ${round}`, top: 0 };
      row.words += `\n${line}`;
      row.top = Math.max(row.top, share ? (100 * spent) / limit.epsilon : spent);
      rows.set(round, row);
    }
  }
  return [...rows.values()];
}

export function accuracyRows(model) {
  const rows = model.measured.map((round) => ({ round: round.round, value: round.metrics.values.accuracy, words: `Model of round ${round.round}: ${accuracy(round.metrics.values.accuracy)} right` }));
  return { measured: thinned(rows, 2 * MOST_POINTS), hover: thinned(rows, MOST_PLACES) };
}

const KINDS = [["received", "answered"], ["refused", "refused"], ["missing", "missing"], ["waiting", "not yet"]];

export function answerRows(model) {
  const rounds = model.rounds.filter((round) => round.answers !== null).slice(-MOST_BARS);
  const rows = rounds.flatMap(({ round, answers }) =>
    KINDS.map(([name, kind], order) => ({ round, order, kind, count: answers[name], words: `Round ${round}: ${answers[name]} ${kind}` })));
  return { answers: rows.filter((row) => row.count > 0) };
}
