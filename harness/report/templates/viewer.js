// The log viewer: draws the replicas' logs at an instant from a story's events. Pure functions that the page and
// the tests call; nothing here touches the document.
//
// Rules
// 1. A replica's log is ranges [epoch, first offset, offset after the last]; an event has what it changed
//    (timeline.py has the rules). `cut` has what was cut, until it is back.
// 2. A record that was acked by the instant and that a replica had and lost is drawn as gone; if another record
//    has its place, that one is drawn and the lost value above it. Without a trace it is unknown what a replica
//    had: every acked record that it lacks in the end is drawn as "not there".
// 3. Every text goes through `escaped`.
"use strict";

const floodmarkViewer = (() => {
  const GAP = 2, HEIGHT = 34, COLOURS = 5;
  const SHOWN = 12, FEW = 3; // offsets at once
  // Beside the logs, or above each of them if there is no room (a phone).
  const WIDE = { row: 84, left: 112, top: 36, bar: 104, before: (count) => `${count} before`, more: (count) => `${count} more` };
  const NARROW = { row: 100, left: 2, top: 50, bar: 64, before: (count) => `‹ ${count}`, more: (count) => `${count} ›` };

  // -- the state at an instant ----------------------------------------------------------------------------

  /** The replicas after events[0..index], the instant, and the last ISR. An event has what it changed: of the log,
   *  so many ranges stay, and others come after them. */
  function stateAt(story, index) {
    const replicas = story.replicas.map((one) => ({ ...one }));
    const state = { replicas, isr: null, time: story.traced ? -Infinity : Infinity };
    for (const event of story.events.slice(0, index + 1)) {
      state.time = event.t;
      state.isr = event.isr || state.isr;
      const replica = replicas.find((one) => one.node === event.n);
      if (!replica) continue;
      for (const name of ["cut", "leo", "hw", "epoch", "role", "up"]) if (name in event) replica[name] = event[name];
      if (event.log) replica.log = [...replica.log.slice(0, event.log[0]), ...event.log.slice(1)];
    }
    return state;
  }

  const epochAt = (log, offset) => {
    const found = log.find(([, first, behind]) => first <= offset && offset < behind);
    return found ? found[0] : null;
  };

  // -- the drawing ----------------------------------------------------------------------------------------

  /** The first offset shown by default: all of short logs, else the offsets around the finding. */
  function windowOf(story, state, shown = SHOWN) {
    const ends = state.replicas.map((one) => Math.max(one.leo || 0, endOf(one.log), endOf(one.cut)));
    const starts = state.replicas.map((one) => (one.log.length ? one.log[0][1] : 0));
    const end = Math.max(...ends, (story.offset ?? -1) + 1, 1), start = Math.min(...starts, end);
    if (end - start <= shown) return { from: start, start, end };
    const middle = story.offset ?? end - 1;
    const from = Math.max(start, Math.min(middle - Math.floor(shown * 0.6), Math.max(start, end - shown + 2)));
    return { from, start, end };
  }

  /** The offsets from one up to another, no more than are shown; also for very large numbers. */
  const offsets = (from, to) => Array.from({ length: Math.max(0, Math.min(SHOWN, to - from)) }, (_, at) => from + at);

  const endOf = (log) => log.reduce((end, one) => Math.max(end, one[2]), 0);

  /** The data to draw for each replica: {node, role, up, leo, hw, boxes, before, behind}. */
  function drawing(story, state, from, shown = SHOWN) {
    const reach = windowOf(story, state, shown);
    const begins = from === undefined || from === null ? reach.from : Math.max(reach.start, from);
    const ends = begins + Math.min(shown, Math.max(6, reach.end - begins + 1));
    const acked = new Map();
    for (const [offset, epoch, time, value] of story.acked) {
      if (time <= state.time && offset >= begins && offset < ends) {
        acked.set(offset, [...(acked.get(offset) || []), { epoch, value }]);
      }
    }
    const rows = state.replicas.map((replica) => ({
      ...replica,
      before: Math.max(0, begins - (replica.log.length ? replica.log[0][1] : begins)),
      behind: Math.max(0, endOf(replica.log) - ends),
      boxes: boxesOf(story, replica, acked, begins, ends),
    }));
    return { rows, from: begins, to: ends, start: reach.start, end: reach.end, isr: state.isr };
  }

  function boxesOf(story, replica, acked, from, to) {
    const boxes = [];
    for (const offset of offsets(from, to)) {
      const epoch = epochAt(replica.log, offset);
      const value = epoch === null ? undefined : story.values[`${offset}:${epoch}`];
      const promised = acked.get(offset) || [];
      const gone = promised.filter((one) => isGone(story, replica, offset, epoch, value, one));
      if (epoch === null && !gone.length) continue;
      boxes.push({
        offset, epoch, value: value === undefined ? null : value, known: value !== undefined,
        acked: promised.some((one) => one.epoch === epoch),
        state: epoch === null ? "gone" : gone.length ? "replaced" : "there",
        lost: gone.map((one) => one.value),
        focus: offset === story.offset && (story.value === null || value === story.value
          || gone.some((one) => one.value === story.value)),
      });
    }
    return boxes;
  }

  function isGone(story, replica, offset, epoch, value, promised) {
    if (promised.epoch !== null && promised.epoch === epoch) return false;
    if (value !== undefined && value === promised.value) return false;
    if (!story.traced) return epoch === null || value !== undefined; // unknown whether it ever was here
    return replica.cut.some(([of, first, behind]) =>
      (promised.epoch === null || of === promised.epoch) && first <= offset && offset < behind);
  }

  // -- as SVG ---------------------------------------------------------------------------------------------

  const escaped = (text) => String(text).replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);

  const BEHIND = 50; // pixels behind the last box: half of a mark's text

  /** The width of a box, wide enough for its value. */
  function sizeOf(drawn) {
    const longest = Math.max(0, ...drawn.rows.flatMap((row) => row.boxes.map((box) => shownOf(box).length)));
    return Math.max(38, Math.min(96, 9.2 * longest + 9));
  }

  /** How many offsets fit into this many pixels; null: all that are ever shown. */
  function fitting(drawn, room) {
    const size = sizeOf(drawn) + GAP, all = drawn.to - drawn.from;
    if (room >= WIDE.left + all * size + BEHIND) return null;
    if (room >= 560) return null;
    const least = NARROW.left + 2 * NARROW.bar;
    return Math.max(FEW, Math.min(SHOWN, Math.floor((room - least) / size)));
  }

  /** The drawing as the text of an SVG element. */
  function svgOf(drawn, label, narrow = false) {
    const form = narrow ? NARROW : WIDE, size = sizeOf(drawn);
    const bar = drawn.rows.some((row) => row.before) ? form.bar : 0;
    const x = (offset) => form.left + bar + (offset - drawn.from) * (size + GAP);
    const width = x(drawn.to) + (drawn.rows.some((row) => row.behind) ? form.bar : BEHIND);
    const height = form.top + drawn.rows.length * form.row;
    const parts = [];
    for (const offset of offsets(drawn.from, drawn.to)) {
      parts.push(`<text class="offset" x="${x(offset) + size / 2}" y="16">${offset}</text>`);
    }
    drawn.rows.forEach((row, at) => parts.push(rowOf(row, form.top + at * form.row, x, drawn, bar, size, form)));
    return `<svg class="logs" role="img" aria-label="${escaped(label)}" viewBox="0 0 ${width} ${height}" ` +
      `width="${width}" height="${height}">${HATCH}${parts.join("")}</svg>`;
  }

  const HATCH = '<defs><pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" ' +
    'patternTransform="rotate(45)"><rect width="2.4" height="7" class="hatch"/></pattern></defs>';

  function rowOf(row, y, x, drawn, bar, size, form) {
    const said = row.up || (row.role === "leader" ? `leads ${row.epoch ?? ""}`.trim() : row.role) || "no role";
    const parts = form === WIDE
      ? [`<text class="node" x="2" y="${y + 20}">${escaped(row.node)}</text>`,
        `<text class="role" x="2" y="${y + 36}">${escaped(said)}</text>`]
      : [`<text class="node" x="2" y="${y - 12}">${escaped(row.node)}` +
        `<tspan class="role" dx="6">${escaped(said)}</tspan></text>`];
    const rest = (from, width, words) =>
      `<rect class="rest" x="${from}" y="${y + 6}" width="${width}" height="${HEIGHT - 12}" rx="3"/>` +
      `<text class="resttext" x="${from + width / 2}" y="${y + 21}">${words}</text>`;
    if (bar && row.before) parts.push(rest(form.left, bar - 8, form.before(row.before.toLocaleString("en"))));
    row.boxes.forEach((box) => parts.push(boxOf(box, x(box.offset), y, size)));
    if (row.behind) parts.push(rest(x(drawn.to) + 4, form.bar - 10, form.more(row.behind.toLocaleString("en"))));
    parts.push(marksOf(row, y, x, drawn, form));
    return `<g class="row ${row.up ? "off" : ""}" data-node="${escaped(row.node)}" data-role="${escaped(row.role)}" ` +
      `data-up="${escaped(row.up)}" data-leo="${row.leo}" data-hw="${row.hw}">${parts.join("")}</g>`;
  }

  /** The text in a box. */
  function shownOf(box) {
    if (box.state === "gone") return String(box.lost[0]);
    return box.known ? (box.value === null ? "·" : String(box.value)) : "?";
  }

  function boxOf(box, x, y, width) {
    const there = box.state !== "gone";
    const shown = shownOf(box), size = shown.length > 9 ? "small" : "";
    const colour = there ? (box.epoch < 0 ? "none" : `e${box.epoch % COLOURS}`) : "";
    const title = there
      ? `offset ${box.offset}, epoch ${box.epoch < 0 ? "unknown" : box.epoch}, ${box.known ? `value ${box.value}` : "value not looked up"}` +
        `${box.acked ? ", acked" : ""}${box.lost.length ? `; acked value ${box.lost.join(", ")} was here` : ""}`
      : `offset ${box.offset}: acked value ${box.lost.join(", ")} is not here`;
    const parts = [`<title>${escaped(title)}</title>`,
      `<rect class="box ${colour}" x="${x}" y="${y}" width="${width}" height="${HEIGHT}" rx="2"/>`];
    if (there && box.epoch >= COLOURS) {
      parts.push(`<rect fill="url(#hatch)" x="${x}" y="${y + HEIGHT - 7}" width="${width}" height="7"/>`);
    }
    parts.push(`<text class="value ${colour} ${size}" x="${x + width / 2}" y="${y + 22}">${escaped(shown)}</text>`);
    if (box.state === "replaced") {
      parts.push(`<rect class="lostedge" x="${x + 1.5}" y="${y + 1.5}" width="${width - 3}" height="${HEIGHT - 3}" rx="2"/>` +
        `<text class="lostvalue" x="${x + width - 3}" y="${y - 3}">${escaped(box.lost[0])}</text>`);
    }
    if (box.focus) {
      parts.push(`<rect class="focus" x="${x - 0.5}" y="${y - 0.5}" width="${width + 1}" height="${HEIGHT + 1}" rx="3"/>`);
    }
    return `<g class="record ${box.state}" data-offset="${box.offset}" data-epoch="${box.epoch}" ` +
      `data-value="${escaped(shown)}" data-lost="${escaped(box.lost.join(","))}" data-state="${box.state}">${parts.join("")}</g>`;
  }

  function marksOf(row, y, x, drawn, form) {
    const parts = [], bottom = y + HEIGHT;
    const inside = (offset) => Number.isInteger(offset) && offset >= drawn.from && offset <= drawn.to;
    const at = (offset) => x(offset) - GAP / 2;
    const same = row.leo === row.hw;
    if (inside(row.leo)) {
      parts.push(`<path class="leo" d="M${at(row.leo) + (same ? 1.5 : 0)} ${y - 4}V${bottom + 5}h-7h14"/>`);
    }
    if (inside(row.hw)) parts.push(`<line class="hw" x1="${at(row.hw) - (same ? 1.5 : 0)}" x2="${at(row.hw) - (same ? 1.5 : 0)}" y1="${y - 6}" y2="${bottom + 5}"/>`);
    const near = inside(row.leo) && inside(row.hw) && !same ? Math.abs(x(row.leo) - x(row.hw)) < 70 : false;
    if (same && inside(row.leo)) {
      parts.push(`<text class="mark" x="${at(row.leo)}" y="${bottom + 20}">HW = LEO ${row.leo}</text>`);
    } else {
      if (inside(row.hw)) parts.push(`<text class="mark hwtext${near ? " ends" : ""}" x="${at(row.hw) + (near ? 4 : 0)}" y="${bottom + 20}">HW ${row.hw}</text>`);
      if (inside(row.leo)) parts.push(`<text class="mark${near ? " begins" : ""}" x="${at(row.leo) - (near ? 8 : 0)}" y="${bottom + 20}">LEO ${row.leo}</text>`);
      const outside = [["HW", row.hw], ["LEO", row.leo]].filter(([, offset]) => Number.isInteger(offset) && !inside(offset));
      if (outside.length) {
        const right = outside[0][1] > drawn.to;
        parts.push(`<text class="mark ${right ? "ends" : "begins"}" x="${right ? x(drawn.to) + form.bar - 10 : form.left}" y="${bottom + 20}">` +
          `${outside.map(([name, offset]) => `${name} ${offset}`).join(", ")}</text>`);
      }
    }
    return parts.join("");
  }

  return { stateAt, drawing, svgOf, fitting, escaped, SHOWN };
})();
