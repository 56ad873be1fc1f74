// The study's hospitals and the programs that they run.
import { ask } from "/static/coordinator.js";
import { element, redraw, section, table } from "/static/elements.js";
import { when } from "/static/numbers.js";

const TONES = { "too-old": "bad", differs: "care", unknown: "calm" };

export function hospitals(name) {
  const list = element("div", {}), node = section("hospitals", "Hospitals and their programs", list);
  // Read again when a hospital has come or gone, and in every round.
  const update = ({ study, rounds }) => redraw(list, [study.clients, rounds.at(-1)?.round], () => {
    const place = element("div", {});
    ask(`/v1/studies/${name}/versions`).then(async (answer) => place.replaceChildren(...programs(await answer.json())))
      .catch((error) => place.replaceChildren(element("p", { class: "note" }, error.message)));
    return place;
  });
  return { node, update };
}

function programs(versions) {
  const { coordinator_version: version, coordinator_protocol: spoken, needed_protocol: needed } = versions;
  const rows = versions.hospitals.map((site) => [
    site.client, site.version ?? "–", site.protocol ?? "–", site.since === null ? "–" : when(site.since),
    site.remark ? element("span", { class: `badge ${TONES[site.comparison] ?? "care"}` }, site.remark) : "as the coordinator",
  ]);
  return [
    element("p", { class: "note" }, `The study needs protocol ${needed}. The coordinator runs version ${version}, which speaks protocol ${spoken}.`),
    rows.length ? table("Programs of the hospitals", ["Hospital", "Version", "Protocol", "Since", "Beside the coordinator"], rows) : "No hospital has enrolled yet.",
  ];
}
