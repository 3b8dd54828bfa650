const $ = id => document.getElementById(id);
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const set = (id, text) => { const e = $(id); if (e.textContent !== text) e.textContent = text; };
const make = (tag, cls, text) => { const e = document.createElement(tag); if (cls) e.className = cls; if (text !== undefined) e.textContent = text; return e; };
function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let n = bytes, u = 0;
  while (n >= 1024 && u < 5) { n /= 1024; u++; }
  return (u === 0 || n >= 100 ? n.toFixed(0) : n.toFixed(1)) + " " + units[u];
}
const count = n => n >= 1e6 ? (n / 1e6).toFixed(1) + " M" : n >= 1e4 ? (n / 1e3).toFixed(1) + " k" : n >= 10 || n === 0 ? n.toFixed(0) : n.toFixed(1);
function span(s) {
  if (s < 1e-3) return (s * 1e6).toFixed(0) + " us";
  if (s < 1) return (s * 1e3).toFixed(s < .01 ? 1 : 0) + " ms";
  if (s < 100) return s.toFixed(0) + " s";
  if (s < 6000) return (s / 60).toFixed(0) + " min";
  if (s < 172800) return (s / 3600).toFixed(1) + " h";
  return (s / 86400).toFixed(0) + " days";
}
function stateOf(s) {
  if (s.uncached === "failed" || (s.cache_disk_failed && !s.uncached) || s.mode.switch === "failed") return ["failed: changes are refused", "bad"];
  if (s.uncached) return [s.uncached.replace("-", " ") + ", without the cache-disk", "warn"];
  if (s.mode.mode && s.mode.mode !== "write-back") return [s.mode.mode, "warn"];
  if (s.destage_held_back) return ["logging; nothing is destaged", "bad"];
  if (s.poisoned_lines) return ["logging; blocks are lost", "bad"];
  return ["logging", "good"];
}
function risk(s) {
  const dirty = s.dirty_bytes + s.zero_bytes, front = s.nvram ? s.nvram.dirty_bytes : 0;
  const legs = s.legs.filter(l => l.state === "in-sync").length;
  const twin = s.volume ? (s.volume.twin && s.volume.twin.holders.length ? " The tables of the volume are on its members, too." : " The tables of the volume go with it: nothing of the volume is found without them.") : "";
  if (s.uncached) return ["Nothing more", "good", "it is not used any more"];
  if (legs > 1) return ["Nothing", "good", `${legs} cache-disks hold all of it: ${size(dirty)} would be lost with the last of them.${twin}`];
  if (dirty + front === 0 && s.cache_disk_clean) return ["Nothing", "good", "all is on the data-disk." + twin];
  if (dirty === 0) return ["Nothing that is written", "good", "nothing on it is newer than the data-disk, as far as is known." + twin];
  return [size(dirty) + " would be lost", "bad", "what is newer than on the data-disk is on the cache-disk alone. A drain, or a second cache-disk, changes that." + twin];
}
function canvas(id) {
  const c = $(id), r = window.devicePixelRatio || 1, w = c.clientWidth || 300, h = c.clientHeight || +c.getAttribute("height");
  if (c.width !== Math.round(w * r)) { c.width = Math.round(w * r); }
  if (c.height !== Math.round(h * r)) { c.height = Math.round(h * r); }
  const g = c.getContext("2d");
  g.setTransform(r, 0, 0, r, 0, 0);
  g.clearRect(0, 0, w, h);
  return [g, w, h, c];
}
const SEGMENTS = { f: ["free", "--free"], e: ["empty", "--empty"], b: ["in memory", "--buffered"], d: ["dirty", "--dirty"] };
