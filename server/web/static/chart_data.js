// From what is known of a study to the rows that the charts draw. Pure.
import { accuracy, partOf, upward } from "/static/numbers.js";
import { limitName } from "/static/words.js";

// ε is smooth: more points would be slower and look the same. The table has every round.
const MOST_POINTS = 64;
// Places that the pointer can be near to: each is an element of its own.
const MOST_PLACES = 40;
export const MOST_BARS = 60;
// A bar is at most a tenth of the picture wide.
const LEAST_BARS = 10;
// Names of limits that have room above each other.
const MOST_NAMES = 14;

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
  const curves = limits.map((limit) => curveOf(model, limit, share, last));
  return {
    spent: curves.flatMap(({ limit, points }) => thinned(points).map(([round, value]) => ({ round, value, limit: limitName(limit) }))),
    reserved: curves.flatMap((curve) => reservation(model, curve)),
    forecast: curves.flatMap((curve) => forecast(model, curve)),
    running: share ? [] : curves.flatMap((curve) => running(model, curve)),
    limits: limitLines(curves, share),
    hover: hoverRows(model, curves, last),
  };
}

// What is drawn of a limit: in ε; or in percent, of its ε or of the steps or squares that it counts. now: as it stands.
function curveOf(model, limit, share, last) {
  const recent = (points) => (last ? points.slice(-last) : points);
  const used = share ? model.progress(limit) : null, part = partOf(limit);
  if (used !== null) return { limit, points: recent(used), now: (100 * part.used) / part.allowed, reserved: (100 * part.reserved) / part.allowed, top: 100 };
  const scale = share ? 100 / limit.epsilon : 1;
  return { limit, points: recent(model.history(limit)).map(([round, spent]) => [round, spent * scale]), now: limit.spent * scale, reserved: limit.reserved * scale, top: limit.epsilon * scale };
}

function reservation(model, { limit, now, reserved }) {
  if (!model.underWay || !(reserved > 0)) return [];
  const { progress } = model.wordsOf(limit), top = limit.spent + limit.reserved;
  const words = progress ? `${limitName(limit)}: ${progress}` : `Reserved for it: up to ε ${upward(top)} of ${limit.epsilon} (${limitName(limit)})`;
  return [{ round: model.underWay.round, low: now, high: now + reserved, limit: limitName(limit), words: `Round ${model.underWay.round} is under way.\n${words}` }];
}

// A straight line: as if every further round cost what the last one did, and never past the limit. The first round says
// nothing of that: it pays what a fixed order costs once, and a plan states its whole ε from it on.
function forecast(model, { limit, points, top }) {
  const left = model.goesOn ? limit.rounds_left_estimate : 0;
  if (!left || points.length < 2) return [];
  const [[before, earlier], [round, value]] = points.slice(-2);
  const end = Math.min(top, value + ((value - earlier) / (round - before)) * left);
  return [[round, value], [round + left, end]].map(([at, reached]) => ({ round: at, value: reached, limit: limitName(limit) }));
}

// ε so far, where the guarantee is not that: as it stands now alone, for it is computed when somebody asks.
function running(model, { limit, points }) {
  const words = model.wordsOf(limit).running, [report] = limit.reports;
  if (!limit.progress || words === null || points.length === 0) return [];
  return [{ round: points.at(-1)[0], value: report.epsilon, limit: limitName(limit), words: `${limitName(limit)}: ${words}` }];
}

// A line for each size of limits. Lines so near that their names would touch have one name, at the highest of them.
function limitLines(curves, share) {
  const values = [...new Set(curves.map(({ top }) => top))].sort((one, other) => other - one), named = [];
  for (const value of values) {
    const near = named.at(-1)?.at(-1) - value < values[0] / MOST_NAMES;
    if (near) named.at(-1).push(value);
    else named.push([value]);
  }
  return named.flatMap((group) => group.map((value) => ({ value, name: value !== group[0] ? "" : share ? "limit" : `limit ε ${group.join(", ")}` })));
}

function hoverRows(model, curves, last) {
  const rows = new Map();
  for (const { limit, points } of curves) {
    const drawn = new Map(points), used = new Map(model.progress(limit) ?? []);
    const spent = model.history(limit);
    for (const [round, epsilon] of thinned(last ? spent.slice(-last) : spent, MOST_PLACES)) {
      const line = used.has(round) ? `ε ${upward(epsilon)} guaranteed, ${upward(used.get(round))} % used` : `ε ${upward(epsilon)} of ${limit.epsilon}, ${upward((100 * epsilon) / limit.epsilon)} %`;
      const row = rows.get(round) ?? { round, words: `After round ${round}`, top: 0 };
      row.words += `\n${limitName(limit)}: ${line}`;
      row.top = Math.max(row.top, drawn.get(round) ?? 0);
      rows.set(round, row);
    }
  }
  return [...rows.values()];
}

export function accuracyRows(model) {
  const rows = model.measured.map((round) => ({ round: round.round, value: round.metrics.values.accuracy, words: `Model of round ${round.round}: ${accuracy(round.metrics.values.accuracy)} right` }));
  return { measured: thinned(rows, 2 * MOST_POINTS), hover: thinned(rows, MOST_PLACES).map((row) => ({ ...row, isAlone: rows.length === 1 })) };
}

const KINDS = [["received", "answered"], ["refused", "refused"], ["missing", "missing"], ["waiting", "not yet"]];

// A bar of each round: who answered at its foot, the others upon them.
export function answerRows(model) {
  const rounds = model.rounds.filter((round) => round.answers !== null).slice(-MOST_BARS);
  const rows = rounds.flatMap(({ round, answers }) => {
    let high = 0;
    return KINDS.map(([name, kind]) => ({ from: round - 0.42, to: round + 0.42, kind, low: high, high: (high += answers[name]), words: `Round ${round}: ${answers[name]} ${kind}` }));
  }).filter((row) => row.high > row.low);
  const room = (rows[0]?.from ?? 0) + LEAST_BARS - 1;
  return { answers: rows.length > 0 && rows.at(-1).to < room ? [...rows, { from: room, to: room, kind: KINDS[0][1], low: 0, high: 0 }] : rows };
}
