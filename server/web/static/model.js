// What the page knows of one study: settings, budget and all rounds so far, kept new by the answers of its twin.

import { NOT_CHARGED } from "/reasons.js";
import { countedOf, partOf, upward } from "/static/numbers.js";

export const keyOf = (limit) => `${limit.level} ${limit.definition}`;

export class StudyModel {
  study = null;
  budget = null;
  version = 0;
  mostRounds = 0;
  words = [];
  queries = [];
  // The control chart of the released model; null where no model is monitored.
  laterPatients = null;
  #rounds = new Map();
  #ordered = [];
  #histories = new Map();

  // The address of what is not known yet.
  path(name, after = 0) {
    return `/dashboard/${name}.json?since=${this.version}&after=${after}`;
  }

  // version: of the first of several pages, for what happens between them is asked for again.
  merge(page, version = page.version) {
    Object.assign(this, { study: page.study, budget: page.budget, version, mostRounds: page.most_rounds, words: page.words });
    for (const round of page.rounds) this.#rounds.set(round.round, round);
    if (page.budget === null) this.#rounds.clear();
    this.#ordered = [...this.#rounds.values()].sort((one, other) => one.round - other.round);
    this.#histories.clear();
  }

  get rounds() {
    return this.#ordered;
  }

  get limits() {
    return (this.budget?.limits ?? []).filter((limit) => limit.epsilon !== null);
  }

  // What it guarantees, in the coordinator's words.
  wordsOf(limit) {
    return this.words.find((words) => words.level === limit.level && words.definition === limit.definition);
  }

  get unprotected() {
    return (this.budget?.limits ?? []).filter((limit) => limit.epsilon === null);
  }

  // Whether rounds of training belong to the study; whether questions do.
  get trains() {
    return this.study.settings.training !== undefined;
  }

  get asks() {
    return (this.study.settings.statistics ?? null) !== null;
  }

  // Queries in order of their numbers, from `first` on; those before are known and have an answer, which stays.
  mergeQueries(first, found) {
    this.queries = [...this.queries.filter((query) => query.number < first), ...found];
  }

  get firstOpenQuery() {
    return this.queries.find((query) => query.state !== "answered")?.number ?? this.queries.length + 1;
  }

  get underWay() {
    return this.rounds.findLast((round) => round.ended_at === null) ?? null;
  }

  get measured() {
    return this.rounds.filter((round) => round.metrics && "accuracy" in round.metrics.values);
  }

  // Whether a round may still begin: a forecast of a study that has ended would be about nothing.
  get goesOn() {
    return this.study.stop_reason === null && this.budget !== null && this.budget.can_continue;
  }

  // Rounds left: as many as the limit that allows the fewest.
  get roundsLeft() {
    if (!this.goesOn) return 0;
    return Math.min(...this.limits.map((limit) => limit.rounds_left_estimate ?? 0));
  }

  // Which limit allows the fewest rounds; null where all allow the same number, as max_steps does.
  get tightest() {
    const left = this.limits.map((limit) => limit.rounds_left_estimate ?? 0);
    if (!this.goesOn || Math.max(...left) === Math.min(...left)) return null;
    return this.limits[left.indexOf(Math.min(...left))];
  }

  // What a round added to a limit; null where it is not charged.
  cost(round, limit) {
    const points = this.history(limit), place = points.findIndex(([number]) => number === round.round);
    return place < 0 ? null : Math.max(0, points[place][1] - (place > 0 ? points[place - 1][1] : 0));
  }

  // [before, after] of a query's charges, first to last; null where it was never charged.
  spentBy(query, limit) {
    const points = this.history(limit), own = new Set(this.rounds.filter((round) => round.query === query.number && placeOf(this, round, limit) !== NOT_CHARGED).map((round) => round.round));
    const places = points.flatMap(([number], place) => (own.has(number) ? [place] : []));
    if (places.length === 0) return null;
    return [places[0] > 0 ? points[places[0] - 1][1] : 0, points[places.at(-1)][1]];
  }

  // Whether a round that has ended was charged to a limit; null where that is not known.
  isCharged(round, limit) {
    const points = this.rounds.filter((each) => spentOf(each, limit) !== undefined), place = points.indexOf(round);
    if (place < 0) return null;
    const [now, before] = [entryOf(round, limit), place > 0 ? entryOf(points[place - 1], limit) : { spent: 0, steps: 0, squares: 0 }];
    return ["spent", "steps", "squares"].some((name) => (now[name] ?? 0) !== (before[name] ?? 0));
  }

  // [round, percent used] of a limit whose rounds say how far it is used up; null for others.
  progress(limit) {
    if (!limit.progress) return null;
    const name = limit.progress.steps ? "steps" : "squares", { allowed } = partOf(limit);
    return this.rounds.filter((round) => entryOf(round, limit)?.[name] !== undefined).map((round) => [round.round, (100 * entryOf(round, limit)[name]) / allowed]);
  }

  // [round, ε] of one limit, for every round that is charged.
  history(limit) {
    const known = this.#histories.get(keyOf(limit));
    if (known !== undefined) return known;
    const found = [];
    this.#histories.set(keyOf(limit), found);
    for (const round of this.rounds) {
      const spent = spentOf(round, limit);
      if (spent !== undefined) found.push([round.round, spent]);
    }
    return found;
  }
}

// ε after a round, whatever made the study stop: with questions alone the limit, whatever an earlier version stated.
export function spentOf(round, limit) {
  const spent = entryOf(round, limit)?.spent;
  return spent > 0 && !limit.progress && countedOf(limit) !== null ? limit.epsilon : spent;
}

export const entryOf = (round, limit) => round.spent?.find((each) => each.level === limit.level && each.definition === limit.definition);

// "step 12", "not charged" or null: what a round is beside its ε where steps or squares are counted.
export function placeOf(model, round, limit) {
  const entry = entryOf(round, limit), isLost = round.state === "abandoned" || round.state === "stopped";
  // With questions alone rounds do not say what was used by then.
  const isKnown = limit.progress || countedOf(limit) === null;
  if (entry && isLost && isKnown && model.isCharged(round, limit) === false) return NOT_CHARGED;
  if (!entry || !limit.progress) return null;
  if (limit.progress.steps) return `step ${entry.steps}`;
  return `${upward((100 * entry.squares) / limit.progress.squares.allowed)} % of μ²`;
}
