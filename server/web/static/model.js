// What the page knows of one study: settings, budget and all rounds so far, kept new by the answers of its twin.

export const keyOf = (limit) => `${limit.level} ${limit.definition}`;

export class StudyModel {
  study = null;
  budget = null;
  version = 0;
  mostRounds = 0;
  #rounds = new Map();
  #ordered = [];
  #histories = new Map();

  // The address of what is not known yet.
  path(name, after = 0) {
    return `/dashboard/${name}.json?since=${this.version}&after=${after}`;
  }

  // version: of the first of several pages, for what happens between them is asked for again.
  merge(page, version = page.version) {
    Object.assign(this, { study: page.study, budget: page.budget, version, mostRounds: page.most_rounds });
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

  get unprotected() {
    return (this.budget?.limits ?? []).filter((limit) => limit.epsilon === null);
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

export const spentOf = (round, limit) => round.spent?.find((each) => each.level === limit.level && each.definition === limit.definition)?.spent;
