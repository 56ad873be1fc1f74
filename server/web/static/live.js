// Keeps a page new: at once by events, and by asking again and again where events do not come through.
import { events } from "/static/coordinator.js";

const POLL_MILLISECONDS = 3000;
// With events it is asked for what no event tells: how many hospitals have answered in the round under way.
const POLL_BESIDE_EVENTS_MILLISECONDS = 8000;
// The coordinator says something every 15 seconds; a network that keeps it back is treated as one without events.
const SILENCE_MILLISECONDS = 40_000;
const RETRY_MILLISECONDS = 20_000;
// What belongs together comes within this time: the end of a round and the beginning of the next are asked for once.
const TOGETHER_MILLISECONDS = 300;

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

// refresh()     asks for what is new; returns whether to go on
// streamFrom()  address of the events that follow what is known, or null where there are none
// tell(state)   "live", "polling" or "hidden"
export function follow({ refresh, streamFrom, tell }) {
  let streaming = false, asked = null, again = false, timer = null, news = null, over = false;

  const look = async () => {
    // One at a time; what happens meanwhile is asked for afterwards.
    if (asked) return void (again = true);
    clearTimeout(timer);
    asked = refresh();
    const goOn = await asked;
    asked = null;
    if (!goOn) return void (over = true);
    tell(document.hidden ? "hidden" : streaming ? "live" : "polling");
    if (again) {
      again = false;
      return look();
    }
    if (!document.hidden) timer = setTimeout(look, streaming ? POLL_BESIDE_EVENTS_MILLISECONDS : POLL_MILLISECONDS);
  };

  const soon = () => {
    news ??= setTimeout(() => {
      news = null;
      look();
    }, TOGETHER_MILLISECONDS);
  };

  const listen = async () => {
    while (!over) {
      const path = streamFrom();
      if (path !== null && !document.hidden) await stream(path);
      streaming = false;
      await pause(path === null || document.hidden ? 1000 : RETRY_MILLISECONDS);
    }
  };

  const stream = async (path) => {
    const stop = new AbortController();
    let silence = setTimeout(() => stop.abort(), SILENCE_MILLISECONDS);
    try {
      for await (const found of events(path, stop.signal)) {
        clearTimeout(silence);
        silence = setTimeout(() => stop.abort(), SILENCE_MILLISECONDS);
        if (!streaming) tell("live");
        streaming = true;
        if (found.length > 0) soon();
      }
    } catch {
      // Whatever it was, asking again says it in words.
    } finally {
      clearTimeout(silence);
    }
  };

  document.addEventListener("visibilitychange", () => {
    if (!over && !document.hidden) look();
  });
  look().then(listen);
  return look;
}
