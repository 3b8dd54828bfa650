let status = null, samples = [], minutes = [], byMinute = false, mayChange = false, mapWindow = null, mapData = null, mapAsked = 0, pid = 0, told = 0;
const get = path => fetch(path).then(r => r.ok ? r.json() : Promise.reject(new Error(r.status)));
const rate = (k, over) => { const some = samples.slice(-over); const s = some.reduce((a, x) => a + x.s, 0); return s ? some.reduce((a, x) => a + x.n[k], 0) / s : 0; };

function figures() {
  const s = status, [words, how] = stateOf(s);
  set("state", words); $("state").className = "pill " + how;
  set("name", s.frontends[0] || s.data_disk);
  document.title = `${words} – dcd ${s.data_disk}`;
  set("facts", `${size(s.volume_bytes)}; ${s.data_disk} behind ${s.cache_disk}; for ${span(s.uptime_seconds)}; a write is acknowledged when it is ${s.ack === "memory" ? "in memory" : s.ack === "log" ? "in the log" : "durable"}`);
  const [lost, h, why] = risk(s);
  set("lost", lost); $("lost").className = "huge " + h; set("lost-why", why);
  const dirty = s.dirty_bytes + s.zero_bytes, d = rate(7, 10), w = rate(4, 10);
  set("dirty", size(dirty)); set("destage", size(d) + "/s");
  set("eta", dirty === 0 ? "now" : d <= w * .99 || d === 0 ? "not yet known" : span(dirty / (d - Math.min(w, d * .99))));
  set("used", (s.utilisation * 100).toFixed(0) + " %");
  set("writes", `${count(rate(1, 2))}/s · ${size(rate(4, 2))}/s`); set("reads", `${count(rate(0, 2))}/s · ${size(rate(3, 2))}/s`); set("flushes", count(rate(2, 2)) + "/s");
  const hit = rate(5, 10), miss = rate(6, 10);
  set("hits", hit + miss ? (100 * hit / (hit + miss)).toFixed(0) + " %" : "no reads");
  set("version", `dcd ${s.version}, process ${s.pid}`);
}

function ring() {
  const map = status.segments.map, [g, w, h, c] = canvas("ring"), r = Math.min(w, h) / 2 - 2, n = map.length;
  let at = 0;
  while (at < n) {
    let end = at + 1;
    while (end < n && map[end] === map[at]) end++;
    g.beginPath(); g.strokeStyle = css(SEGMENTS[map[at]][1]); g.lineWidth = r * .3;
    g.arc(w / 2, h / 2, r * .84, (at / n - .25) * 2 * Math.PI, (end / n - .25) * 2 * Math.PI); g.stroke();
    at = end;
  }
  g.fillStyle = css("--ink"); g.textAlign = "center"; g.font = "600 20px system-ui,sans-serif";
  g.fillText((status.utilisation * 100).toFixed(0) + " %", w / 2, h / 2 + 3);
  g.font = "12px system-ui,sans-serif"; g.fillStyle = css("--quiet"); g.fillText("in use", w / 2, h / 2 + 20);
  const s = status.segments, parts = [["d", s.dirty], ["b", s.buffered], ["e", s.empty], ["f", s.free]];
  const key = $("ring-key");
  if (!key.children.length) parts.forEach(([k]) => { const li = make("li"); li.append(make("i", "i-" + k), make("span")); key.append(li); });
  parts.forEach(([k, m], i) => { key.children[i].lastChild.textContent = `${m} ${SEGMENTS[k][0]}`; });
  c.setAttribute("aria-label", `The segments of the log: ${parts.map(([k, m]) => m + " " + SEGMENTS[k][0]).join(", ")}, of ${s.total} with ${size(s.size_bytes)} each`);
}

const MAP_ROWS = 16;
function mapCells() { return Math.min(4096, Math.max(256, Math.floor($("map").clientWidth / 8) * MAP_ROWS)); }
async function askMap() {
  if (document.hidden || !status) return;
  const w = mapWindow || { start: 0, bytes: status.volume_bytes }, asked = ++mapAsked;
  try {
    const m = await get(`/api/v1/map?start=${w.start}&bytes=${w.bytes}&cells=${mapCells()}`);
    if (asked === mapAsked) { mapData = m; drawMap(); }
  } catch (e) { /* asked again */ }
}
let drag = null;
function grid() { const c = $("map"), n = mapData.dirty_lines.length, rows = Math.min(MAP_ROWS, n), cols = Math.ceil(n / rows); return { n, rows, cols, cw: c.clientWidth / cols, ch: c.clientHeight / rows }; }
function drawMap() {
  if (!mapData || !mapData.dirty_lines.length) return;
  const [g, w, h] = canvas("map"), { n, cols, cw, ch } = grid(), full = mapData.cell_bytes / 4096;
  const heat = css("--dirty"), free = css("--free"), gap = cw > 4 ? 1 : 0;
  let sum = 0, used = 0;
  for (let i = 0; i < n; i++) {
    const v = mapData.dirty_lines[i], x = (i % cols) * cw, y = Math.floor(i / cols) * ch;
    g.globalAlpha = 1; g.fillStyle = free; g.fillRect(x, y, cw - gap, ch - gap);
    if (v) { sum += v; used++; g.globalAlpha = .3 + .7 * Math.min(1, Math.log(1 + v) / Math.log(1 + full)); g.fillStyle = heat; g.fillRect(x, y, Math.max(1, cw - gap), ch - gap); }
  }
  g.globalAlpha = 1;
  if (drag) { g.strokeStyle = css("--ink"); g.lineWidth = 2; const [a, b] = [Math.min(drag.a, drag.b), Math.max(drag.a, drag.b)]; for (let i = a; i <= b && i < n; i++) g.strokeRect((i % cols) * cw, Math.floor(i / cols) * ch, cw, ch); }
  const end = Math.min(status.volume_bytes, mapData.start + n * mapData.cell_bytes);
  set("map-range", `${size(mapData.start)} to ${size(end)}: ${size(sum * 4096)} dirty in ${used} of ${n} cells of ${size(mapData.cell_bytes)}`);
}
function cellAt(e) { const r = $("map").getBoundingClientRect(), { n, cols, cw, ch } = grid(); return Math.max(0, Math.min(n - 1, Math.floor((e.clientY - r.top) / ch) * cols + Math.min(cols - 1, Math.floor((e.clientX - r.left) / cw)))); }
function zoomTo(start, bytes) {
  const all = status.volume_bytes; bytes = Math.max(65536, Math.min(all, bytes)); start = Math.max(0, Math.min(all - bytes, start));
  mapWindow = bytes >= all ? null : { start: Math.floor(start / 4096) * 4096, bytes: Math.ceil(bytes / 4096) * 4096 };
  askMap();
}
function zoom(factor, move) {
  if (!status) return;
  const w = mapWindow || { start: 0, bytes: status.volume_bytes }, b = w.bytes * factor;
  zoomTo(w.start + (w.bytes - b) / 2 + move * w.bytes, b);
}
$("map").addEventListener("pointerdown", e => { if (mapData) { const i = cellAt(e); drag = { a: i, b: i }; drawMap(); } });
$("map").addEventListener("pointermove", e => {
  if (!mapData || !mapData.dirty_lines.length) return;
  const i = cellAt(e); if (drag) { drag.b = i; drawMap(); }
  set("map-says", `at ${size(mapData.start + i * mapData.cell_bytes)}: ${size(mapData.dirty_lines[i] * 4096)} of ${size(mapData.cell_bytes)} dirty`);
});
window.addEventListener("pointerup", () => {
  if (!drag) return; const a = Math.min(drag.a, drag.b), b = Math.max(drag.a, drag.b); drag = null;
  if (b > a) zoomTo(mapData.start + a * mapData.cell_bytes, (b - a + 1) * mapData.cell_bytes); else drawMap();
});
$("map").addEventListener("keydown", e => {
  const does = { "+": [.5, 0], "=": [.5, 0], "-": [2, 0], ArrowLeft: [1, -.25], ArrowRight: [1, .25], ArrowUp: [1, -1], ArrowDown: [1, 1], "0": [1e9, 0] }[e.key];
  if (does) { e.preventDefault(); zoom(...does); }
});
$("zoom-in").onclick = () => zoom(.5, 0); $("zoom-out").onclick = () => zoom(2, 0); $("zoom-all").onclick = () => zoom(1e9, 0);

const bound = k => k === 0 ? 1e-6 : Math.pow(2, k) * 1e-6;
function heat(id, kind) {
  const all = byMinute ? minutes : samples, wide = byMinute ? 1440 : 600, [g, w, h, c] = canvas(id), rgb = css("--heat"), quiet = css("--quiet");
  const cw = w / wide, low = 2, high = 25, rh = h / (high - low + 1); let max = 1, worst = -1, total = 0;
  all.forEach(x => { const t = x.times[kind]; for (let i = 1; i < t.length; i++) { max = Math.max(max, t[i]); total += t[i]; if (t[i]) worst = Math.max(worst, t[0] + i - 1); } });
  all.forEach((x, j) => {
    const t = x.times[kind], left = w - (all.length - j) * cw;
    for (let i = 1; i < t.length; i++) if (t[i]) {
      const k = Math.max(low, t[0] + i - 1);
      g.fillStyle = `rgba(${rgb},${.25 + .75 * Math.log(1 + t[i]) / Math.log(1 + max)})`;
      g.fillRect(left, h - (k - low + 1) * rh, Math.max(1.5, cw), rh);
    }
  });
  g.font = "11px system-ui,sans-serif"; g.textAlign = "left";
  [[7, "128 us"], [14, "16 ms"], [20, "1 s"]].forEach(([k, words]) => { const y = h - (k - low + 1) * rh; g.fillStyle = css("--line"); g.fillRect(0, y, w, 1); g.fillStyle = quiet; g.fillText(words, 2, y - 2); });
  const words = total ? `${count(total)}, the longest below ${span(bound(worst))}` : "none";
  set(id + "-says", words); c.setAttribute("aria-label", `Response times of ${["reads", "writes", "flushes"][kind]}, ${byMinute ? "a day" : "ten minutes"}: ${words}`);
}
function line(id, of, words) {
  const all = byMinute ? minutes : samples, wide = byMinute ? 1440 : 600, [g, w, h, c] = canvas(id), values = all.map(of), top = Math.max(1, ...values.filter(v => v !== null));
  g.strokeStyle = css("--accent"); g.lineWidth = 1.5; g.beginPath(); let on = false;
  values.forEach((v, j) => { if (v === null) { on = false; return; } const x = w - (all.length - j) * w / wide, y = h - 2 - v / top * (h - 4); if (on) g.lineTo(x, y); else g.moveTo(x, y); on = true; });
  g.stroke(); g.fillStyle = css("--line"); g.fillRect(0, h - 1, w, 1);
  const last = values.filter(v => v !== null).pop(), text = last === undefined ? "none" : words(last, top);
  set(id + "-says", text); c.setAttribute("aria-label", `${id === "line-hits" ? "Share of reads that came from the cache" : "Dirty bytes"}: ${text}`);
}
function overTime() {
  heat("heat-reads", 0); heat("heat-writes", 1); heat("heat-flushes", 2);
  line("line-hits", x => x.n[5] + x.n[6] ? 100 * x.n[5] / (x.n[5] + x.n[6]) : null, v => v.toFixed(0) + " %");
  line("line-dirty", x => x.n[9], (v, top) => `${size(v)}, at most ${size(Math.max(top, v))}`);
}
function choose(minute) {
  byMinute = minute; $("by-second").setAttribute("aria-pressed", !minute); $("by-minute").setAttribute("aria-pressed", minute);
  (minute ? get("/api/v1/history?step=minute").then(h => { minutes = h.samples; }) : Promise.resolve()).then(overTime, () => {});
}
$("by-second").onclick = () => choose(false); $("by-minute").onclick = () => choose(true);

function disks() {
  const v = status.volume, rows = status.legs.map(l => ["cache " + (l.disk || l.leg), l.state, l.state === "filling" ? l.total_bytes - l.filled_bytes : 0, l.errors, l.state === "in-sync"])
    .concat(v ? v.members.map(m => [`${m.member} ${m.disk || ""}`, m.suspect ? m.state + ", suspect" : m.state, m.bytes_to_rebuild, m.errors, m.state === "up-to-date" && !m.suspect]) : []);
  $("volume").hidden = !rows.length;
  $("members").replaceChildren(...rows.map(r => { const tr = make("tr"), head = make("th", "", r[0]); head.scope = "row"; tr.append(head, make("td", r[4] ? "good" : "bad", r[1]), make("td", "", r[2] ? size(r[2]) : "–"), make("td", "", String(r[3]))); return tr; }));
  const work = v && v.work; $("work").hidden = !work;
  if (work) set("work", `${work.kind}${work.member === null ? "" : " of member " + work.member}: ${size(work.bytes_done)} of ${size(work.bytes_total)}, ${(100 * work.done / Math.max(1, work.total)).toFixed(0)} %`);
}
function sequences(list) {
  $("sequences").hidden = !list.read_area_bytes;
  const some = list.sequences.slice(0, 100), most = Math.max(1, ...some.map(s => s.lines)), saved = list.sequences.reduce((a, s) => a + s.lines_served, 0);
  set("sequences-says", `${list.sequences.length} kept, in the order of their making; ${size(list.copied_bytes)} of ${size(list.read_area_bytes)} hold copies; ${size(saved * 4096)} were read from them and not from the data-disk.${list.sequences.length > 100 ? " The first 100:" : ""}`);
  $("strips").replaceChildren(...some.map(s => {
    const li = make("li"), strip = make("div", "strip"), a = make("span", "s-copied"), b = make("span", "s-stale");
    strip.style.width = Math.max(2, 100 * s.lines / most) + "%"; a.style.flex = String(s.lines - s.stale); b.style.flex = String(s.stale); strip.append(a, b);
    li.append(make("span", "", `${s.name}: ${size(s.lines * 4096)}${s.stale ? ", " + size(s.stale * 4096) + " wait" : ""}; ${s.runs} runs saved ${size(s.lines_served * 4096)}${s.off ? "; not read ahead, it did not pay" : ""}`), strip); return li;
  }));
}
function news(some) {
  some.forEach(n => {
    if (n.number <= told) return; told = n.number;
    const li = make("li"), t = new Date(n.at_unix_seconds * 1000), time = make("time", "", t.toLocaleString()); time.dateTime = t.toISOString();
    li.append(time, make("strong", { note: "", warning: "warn", error: "bad" }[n.weight], (n.weight === "note" ? "" : n.weight + ": ") + n.what), document.createTextNode((n.times > 1 ? ` (${n.times} times)` : "") + (n.why ? ": " + n.why : "")));
    li.dataset.what = n.what; const first = $("news").firstChild;
    if (n.times > 1 && first && first.dataset.what === n.what) first.remove();
    $("news").prepend(li);
  });
  while ($("news").children.length > 200) $("news").lastChild.remove();
}
function change(method, path, body) {
  return fetch(path, { method, headers: { Authorization: "Bearer " + $("token").value }, body: body && JSON.stringify(body) }).then(r => r.json()).then(a => { set("settings-says", a.ok ? "done" : `${a.error}: ${a.hint || ""}`); return a; }, () => set("settings-says", "dcd does not answer"));
}
function settings() {
  if (!$("settings-box").open) return;
  $("token-form").hidden = !mayChange; $("read-only").hidden = mayChange;
  get("/api/v1/settings").then(a => $("settings").replaceChildren(...a.settings.map(s => {
    const tr = make("tr"), head = make("th", "", s.key), last = make("td"); head.scope = "row";
    if (mayChange && !s.needs_restart) {
      const form = make("form"), input = make("input"), button = make("button", "", "set"); input.setAttribute("aria-label", "New value of " + s.key); button.setAttribute("aria-label", "Set " + s.key);
      form.append(input, button); form.onsubmit = e => { e.preventDefault(); change("PUT", "/api/v1/settings/" + s.key, { value: input.value }).then(a => { if (a && a.ok) settings(); }); }; last.append(form);
    } else last.textContent = s.needs_restart ? "takes a restart" : "–";
    tr.append(head, make("td", "", s.value || "–"), make("td", "", s.origin), last); return tr;
  })), () => set("settings-says", "this dcd tells no settings"));
}
$("settings-box").ontoggle = settings; $("token-form").onsubmit = e => e.preventDefault();
$("drain").onclick = () => change("POST", "/api/v1/drain"); $("cancel-drain").onclick = () => change("DELETE", "/api/v1/drain");

function show(s) { if (!s) { set("state", "is being opened or closed"); $("state").className = "pill warn"; return; } status = s; figures(); if (s.segments.map) ring(); disks(); }
function connect() {
  const stream = new EventSource("/api/v1/events");
  stream.addEventListener("hello", e => {
    const h = JSON.parse(e.data); mayChange = h.may_change; told = 0; $("news").replaceChildren();
    if (h.status && h.status.pid !== pid) { pid = h.status.pid; samples = []; minutes = []; }
    show(h.status); news(h.news);
    get("/api/v1/history").then(a => { samples = a.samples; figures(); overTime(); document.documentElement.dataset.ready = "1"; }).catch(() => {});
    askMap(); settings(); get("/api/v1/sequences").then(sequences, () => {});
  });
  stream.addEventListener("second", e => {
    const m = JSON.parse(e.data); show(m.status); news(m.news);
    if (m.sample) { samples.push(m.sample); if (samples.length > 600) samples.shift(); if (status && !document.hidden) { figures(); if (!byMinute) overTime(); } }
  });
  stream.onerror = () => { set("state", "no answer; trying again"); $("state").className = "pill bad"; };
}
const redraw = () => { if (status) { if (status.segments.map) ring(); overTime(); drawMap(); } };
addEventListener("resize", redraw); matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
setInterval(askMap, 5000); setInterval(() => { if (!document.hidden) { get("/api/v1/sequences").then(sequences, () => {}); if (byMinute) choose(true); } }, 30000);
connect();
