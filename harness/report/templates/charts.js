// The run over time: fills in the drawings' data for the time shown, draws them, and lets a reader zoom by
// dragging. The cursor and the brush are lines over all drawings.
"use strict";

const floodmarkCharts = (() => {
  const TYPES = ["ok", "fail", "info"], KINDS = ["send", "poll", "other"];
  const SINGLE = 400, COLUMN = 4; // ops shown one by one; pixels of a column

  // -- pure: from the ops to the rows that are drawn --------------------------------------------------------

  /** The ops' columns with their times in ms. */
  function opsOf(columns) {
    const began = new Float64Array(columns.began.length);
    let time = 0;
    columns.began.forEach((more, at) => { time += more; began[at] = time / 1000; });
    return { began, lasted: columns.lasted, what: columns.what, records: columns.records, count: began.length };
  }

  /** Counts, latencies and rates by column of pixels between two times; and the single ops, if they are few. */
  function binned(ops, from, to, columns) {
    const width = (to - from) / columns;
    const bins = Array.from({ length: columns }, () => ({ counts: [0, 0, 0], times: [], acked: 0 }));
    const single = [];
    let seen = 0;
    for (let at = 0; at < ops.count; at += 1) {
      const ended = ops.began[at] + ops.lasted[at] / 1000;
      if (ended < from || ended > to) continue;
      seen += 1;
      const bin = bins[Math.min(columns - 1, Math.floor((ended - from) / width))];
      const type = ops.what[at] % 3, kind = Math.floor(ops.what[at] / 3);
      bin.counts[type] += 1;
      if (type === 0) {
        bin.times.push(ops.lasted[at] / 1000);
        if (kind === 0) bin.acked += ops.records[at];
      }
      if (seen <= SINGLE) single.push({ t: ended, type: TYPES[type], op: KINDS[kind], lasted: span(ops.lasted[at] / 1000), at: clock(ended) });
    }
    return { bins, width, single: seen <= SINGLE ? single : [], few: seen <= SINGLE };
  }

  /** Rows for the drawings' data. */
  function rowsOf(binned, from) {
    const counts = [], latency = [], rates = [];
    binned.bins.forEach((bin, at) => {
      const begins = from + at * binned.width, middle = begins + binned.width / 2;
      let below = 0;
      for (const type of [0, 2, 1]) {
        const count = bin.counts[type];
        if (count && !binned.few) {
          counts.push({ from: begins, to: begins + binned.width, from_count: below, to_count: below + count,
            type: TYPES[type], count, at: clock(begins) });
        }
        below += count;
      }
      rates.push({ t: middle, acked: (bin.acked / binned.width) * 1000 });
      if (!bin.times.length) { latency.push({ t: middle, p50: null, p99: null, max: null }); return; }
      const sorted = bin.times.sort((a, b) => a - b);
      const part = (share) => Math.max(0.001, sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))]);
      latency.push({ t: middle, p50: part(0.5), p99: part(0.99), max: part(1) });
    });
    const empty = (at) => !latency[at] || latency[at].p50 === null;
    const lonely = latency.filter((one, at) => one.p50 !== null && empty(at - 1) && empty(at + 1));
    return { counts, latency, lonely, rates, ops: binned.single };
  }

  /** The points between two times, the last before begins with the first time and the last one goes on. */
  function within(points, from, to) {
    const inside = points.filter((one) => one.t >= from && one.t <= to);
    const before = points.filter((one) => one.t < from).pop();
    if (before && before.leo !== null) inside.unshift({ ...before, t: from });
    const last = inside[inside.length - 1];
    if (last && last.leo !== null && last.t < to && points.some((one) => one.t > to)) inside.push({ ...last, t: to });
    return inside;
  }

  const span = (ms) => (ms >= 1000 ? `${(ms / 1000).toFixed(3)} s` : `${ms.toFixed(3)} ms`);
  const clock = (ms) => `${(ms / 1000).toFixed(3)} s`;

  // -- drawing --------------------------------------------------------------------------------------------

  const drawn = new Map();
  let data, ops, zoom, partition;
  const byId = (id) => document.getElementById(id);
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  /** The specifications of the drawings, in the colours of the page's styles. */
  function specifications() {
    const text = JSON.stringify(data.charts).replace(/"(--[\w-]+)"/g, (_, name) => JSON.stringify(css(name)));
    const { config, rails, logs, load } = JSON.parse(text);
    config.font = getComputedStyle(document.body).fontFamily;
    rails[0].height *= data.lanes.length;
    rails[0].encoding.y.scale = { domain: data.lanes };
    const replicas = data.nodes.map((node, number) => { // no text of a run is in an expression
      const view = structuredClone(logs[0]);
      view.encoding.y.title = node;
      view.layer.forEach((layer) => { layer.transform = [{ filter: { field: "number", equal: number } }]; });
      return view;
    });
    return [config, { "plot-rails": data.lanes.length ? rails : rails.slice(1), "plot-logs": replicas, "plot-load": load }];
  }

  /** The rows of all times, without those of other partitions. */
  function rowsHere() {
    const here = (one) => one.partition === undefined || one.partition === partition;
    return Object.fromEntries(Object.entries(data.rows).map(([name, rows]) => [name, rows.filter(here)]));
  }

  /** Labels for bars: the longest of a bar's names that fits into its visible part. */
  function labelled(rows, names) {
    const pixel = (zoom[1] - zoom[0]) / plotWidth(), labels = [];
    for (const one of rows) {
      const from = Math.max(one.from, zoom[0]), to = Math.min(one.to, zoom[1]);
      const label = names(one).find((words) => words.length * 6.4 + 6 < (to - from) / pixel);
      if (label) labels.push({ ...one, from, middle: (from + to) / 2, label });
    }
    return labels;
  }

  /** The last LEO of a node that is shown. */
  function endsOf(points) {
    const last = points.filter((one) => one.leo !== null).pop();
    return last ? [{ ...last, label: `LEO ${last.leo.toLocaleString("en")}` }] : [];
  }

  /** Shows the legend's entries that the drawings of this run have. */
  function explain(rows) {
    const types = new Set(ops.what.map((each) => TYPES[each % 3]));
    const there = { fault: rows.bands.length, strike: rows.strikes.length, elected: rows.elections.length,
      unclean: rows.elections.some((one) => !one.clean), unsafe: rows.cuts.some((one) => one.blamed),
      truncated: rows.cuts.some((one) => !one.blamed), lost: rows.lost.length, leads: rows.reigns.length,
      ok: types.has("ok"), info: types.has("info"), fail: types.has("fail") };
    document.querySelectorAll("[data-if]").forEach((one) => { one.hidden = !there[one.dataset.if]; });
  }

  function columnsOf() { return Math.max(20, Math.floor(plotWidth() / COLUMN)); }
  function plotWidth() { return Math.max(160, byId("plot-rails").clientWidth - 92 - 14); }

  async function draw() {
    const rows = rowsHere();
    Object.assign(rows, rowsOf(binned(ops, zoom[0], zoom[1], columnsOf()), zoom[0]));
    explain(rows);
    rows.labels = labelled(rows.bands, (one) => [one.label, one.label.split(",")[0]]);
    rows.epochs = labelled(rows.reigns, (one) => [`leads epoch ${one.epoch}`, `epoch ${one.epoch}`, `${one.epoch}`]);
    rows.silent = labelled(rows.silences, (one) => [one.label, one.label.split(" (")[0], "no ack"]);
    const points = data.nodes.map((node, number) => rows.replicas.filter((one) => one.node === node).flatMap((one) =>
      within(one.at.map(([t, leo, hw]) => ({ number, t, leo, hw })), zoom[0], zoom[1])));
    rows.points = points.flat();
    rows.end = points.flatMap(endsOf);
    const [config, drawings] = specifications();
    for (const [id, views] of Object.entries(drawings)) {
      if (!byId(id)) continue;
      views.forEach((view, at) => {
        view.width = plotWidth();
        view.encoding.x.scale = { domain: zoom, nice: false, zero: false };
        if (at === views.length - 1) view.encoding.x.axis = { labels: true, ticks: true };
      });
      if (drawn.has(id)) drawn.get(id).finalize();
      const spec = { vconcat: views, config, datasets: rows, params: [{ name: "until", value: zoom[1] }],
        resolve: { scale: { color: "independent", shape: "independent" } } };
      const theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
      drawn.set(id, await vegaEmbed(byId(id), spec, { actions: false, renderer: "svg", logLevel: 1, tooltip: { theme } }));
    }
    byId("shown-time").textContent = `${clock(zoom[0])} to ${clock(zoom[1])}`;
    byId("zoom-out").hidden = zoom[0] <= data.span[0] && zoom[1] >= data.span[1];
    placeCursor(floodmarkPage.cursor);
  }

  // -- cursor, zoom ---------------------------------------------------------------------------------------

  /** The position of the plots' area on the page. */
  function area() {
    const inner = byId("plot-rails").querySelector(".mark-group.role-scope .background");
    return inner ? inner.getBoundingClientRect() : null;
  }

  function placeCursor(time) {
    const box = area();
    document.querySelectorAll(".cursor").forEach((line) => {
      line.hidden = time === null || time < zoom[0] || time > zoom[1] || !box;
      if (line.hidden) return;
      const left = box.left + ((time - zoom[0]) / (zoom[1] - zoom[0])) * box.width;
      const plot = line.parentElement.querySelector(".plot");
      line.style.top = `${plot.offsetTop}px`;
      line.style.height = `${plot.offsetHeight - 22}px`; // not over the times below
      line.style.left = `${left - line.parentElement.getBoundingClientRect().left}px`;
      line.dataset.time = String(time);
    });
  }

  function listen() {
    const plots = byId("plots"), brush = byId("brush");
    let from = null;
    const timeAt = (x) => {
      const box = area();
      return zoom[0] + (Math.max(0, Math.min(1, (x - box.left) / box.width))) * (zoom[1] - zoom[0]);
    };
    plots.addEventListener("pointerdown", (event) => {
      if (event.button === 0 && event.target.closest(".plot") && area()) { from = event.clientX; event.preventDefault(); }
    });
    addEventListener("pointermove", (event) => {
      if (from === null) return;
      const left = plots.getBoundingClientRect().left;
      brush.hidden = Math.abs(event.clientX - from) < 6;
      brush.style.left = `${Math.min(from, event.clientX) - left}px`;
      brush.style.width = `${Math.abs(event.clientX - from)}px`;
    });
    addEventListener("pointerup", (event) => {
      if (from === null) return;
      const times = [timeAt(from), timeAt(event.clientX)].sort((a, b) => a - b);
      from = null;
      if (!brush.hidden && times[1] - times[0] > 0.01) zoomTo(times);
      brush.hidden = true;
    });
    plots.addEventListener("dblclick", (event) => { if (event.target.closest(".plot")) zoomTo(data.span); });
    byId("zoom-out").addEventListener("click", () => zoomTo(data.span));
    byId("zoom-finding").addEventListener("click", () => zoomTo(data.opens));
    byId("partition").addEventListener("change", (event) => { partition = Number(event.target.value); draw(); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    let waiting = null, width = plotWidth();
    addEventListener("resize", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => { if (plotWidth() !== width) { width = plotWidth(); draw(); } }, 150);
    });
  }

  /** Shows another partition in the drawings of one partition. */
  function choose(wanted) {
    if (!data || wanted === partition || !data.partitions.includes(wanted)) return;
    partition = wanted;
    byId("partition").value = String(wanted);
    draw();
  }

  function zoomTo(times) { zoom = [...times]; return draw(); }

  async function start() {
    if (!byId("plots")) return;
    data = floodmarkPage.data;
    ops = opsOf(data.ops);
    zoom = [...data.opens];
    partition = data.partitions[0];
    const script = document.createElement("script");
    script.textContent = await floodmarkPage.unpacked("vega");
    document.head.append(script);
    byId("partition").innerHTML = data.partitions.map((one) => `<option>${Number(one)}</option>`).join("");
    byId("choose-partition").hidden = data.partitions.length < 2;
    byId("zoom-finding").hidden = data.opens[0] <= data.span[0] && data.opens[1] >= data.span[1];
    listen();
    await draw();
    floodmarkPage.listeners.push(placeCursor);
    floodmarkPage.reset = () => zoomTo(data.opens);
  }

  return { opsOf, binned, rowsOf, start, zoomTo, choose };
})();
