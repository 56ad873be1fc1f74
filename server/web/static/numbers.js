// Numbers and times as people read them, each rounded to the safe side.

// At least two decimals, never rounded down: a shown loss must not look smaller than it is.
export function upward(value) {
  if (value === null || value === undefined) return "–";
  const scale = value !== 0 && Math.abs(value) < 0.1 ? 10 ** (1 - Math.floor(Math.log10(Math.abs(value)))) : 100;
  const rounded = Math.ceil(value * scale) / scale;
  return scale === 100 && value !== 0 ? rounded.toFixed(2) : String(rounded);
}

// Steps of abandoned rounds are not taken: their places in a noise schedule are used.
const gone = (part) => part.used + (part.abandoned ?? 0);

// Whether no step of a plan can be taken any more, and questions have a part of their own left.
export function takesQuestions(limit) {
  const { steps, squares } = limit.progress ?? {};
  return Boolean(steps && squares && gone(steps) >= steps.allowed && squares.used < squares.allowed);
}

// What is left of a limit once the round under way is charged, in whole percent, never rounded up.
export function percentLeft(limit) {
  const part = takesQuestions(limit) ? limit.progress.squares : partOf(limit);
  if (part !== null) return Math.max(0, Math.floor(100 * (1 - (gone(part) + part.reserved) / part.allowed)));
  if (limit.remaining === null) return 0;
  return Math.max(0, Math.floor((100 * limit.remaining) / limit.epsilon));
}

// How far a limit is used up where steps or squares are counted, also with questions alone; null where it is kept in ε.
export function countedOf(limit) {
  if (limit.progress) return limit.progress;
  const { used, allowed } = limit.certificate ?? {};
  return typeof used === "number" && allowed > 0 ? { enforcement: "gaussian-filter", steps: null, squares: { used, reserved: 0, allowed } } : null;
}

// What is counted: the steps of a plan, or else squares.
export function partOf(limit) {
  const counted = countedOf(limit);
  return counted === null ? null : (counted.steps ?? counted.squares);
}

// The share of μ² that one query uses up, in words; null where no μ² bounds it.
export function shareWords(query, limit) {
  const counted = countedOf(limit), { kind, noise_multiplier: noise } = query.document.question;
  // Of a plan, μ² is that of questions on all patients, and an evaluation is not on all.
  if (!counted?.squares || (counted.steps && kind === "evaluation")) return null;
  return `${upward((100 * noise ** -2) / counted.squares.allowed)} % of ${counted.steps ? "the share for questions" : "μ²"}`;
}

// Of 100 guesses, how many are right at most; never rounded down.
export const guessesOf100 = (success) => String(Math.ceil(success * 1000) / 10);

export const accuracy = (value) => `${(Math.floor(value * 1000) / 10).toFixed(1)} %`;

export const number = (whole) => whole.toLocaleString("en");
export const count = (whole, one, many = `${one}s`) => `${number(whole)} ${whole === 1 ? one : many}`;

// Of an estimate as many digits as it can have a meaning in; the CSV has all of them.
export function estimate(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toPrecision(3);
  return String(Number(size >= 100 ? value.toFixed(1) : value.toPrecision(4)));
}

// Made once: a formatter costs more than all the times that it writes.
const CLOCK = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" });

export const when = (text) => CLOCK.format(new Date(text));

const STEPS = [["day", 86400], ["hour", 3600], ["minute", 60]];

export function ago(text, now = Date.now()) {
  const seconds = Math.max(0, (now - new Date(text)) / 1000);
  const [unit, size] = STEPS.find(([, size]) => seconds >= size) ?? [null, 1];
  return unit === null ? "just now" : `${count(Math.floor(seconds / size), unit)} ago`;
}

export function duration(seconds) {
  const [unit, size] = STEPS.find(([, size]) => seconds >= size) ?? ["second", 1];
  return count(Math.round(seconds / size), unit);
}
