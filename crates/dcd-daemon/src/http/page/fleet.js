let before = {};
function card(c) {
  const li = make("li"), box = make("section"), s = c.status;
  box.append(make("h2", "", c.name));
  if (!s) { box.append(make("p", "bad", "does not answer"), make("p", "quiet", c.error || "")); li.append(box); return li; }
  const [words, how] = stateOf(s), [lost, h, why] = risk(s), old = before[c.name];
  const seconds = old && old.pid === s.pid ? s.uptime_seconds - old.uptime_seconds : 0;
  const per = k => seconds > 0 ? (s.counters[k] - old.counters[k]) / seconds : 0;
  box.append(make("p", how, words), make("p", "quiet", `${s.data_disk} behind ${s.cache_disk}`));
  const mini = make("canvas", "mini"), map = s.segments.map; mini.width = 512; mini.height = 1;
  mini.setAttribute("role", "img"); mini.setAttribute("aria-label", `The log: ${(s.utilisation * 100).toFixed(0)} % in use`);
  const g = mini.getContext("2d");
  for (let i = 0; i < 512; i++) { const k = map[Math.floor(i * map.length / 512)]; if (k) { g.fillStyle = css(SEGMENTS[k][1]); g.fillRect(i, 0, 1, 1); } }
  box.append(mini);
  const dl = make("dl", "figures");
  [["dirty", size(s.dirty_bytes + s.zero_bytes)], ["log in use", (s.utilisation * 100).toFixed(0) + " %"], ["writes", size(per("write_bytes")) + "/s"], ["destage", size(per("destage_write_bytes")) + "/s"]]
    .forEach(([k, v]) => { const d = make("div"); d.append(make("dt", "", k), make("dd", "", v)); dl.append(d); });
  box.append(dl, make("p", h, "If the cache-disk dies now: " + lost), make("p", "quiet", why));
  li.append(box); return li;
}
function show(fleet) {
  const all = fleet.caches, bad = all.filter(c => !c.status || stateOf(c.status)[1] === "bad").length;
  set("state", all.length ? bad ? `${bad} of ${all.length} need a look` : "all well" : "no caches are served"); $("state").className = "pill " + (bad ? "bad" : all.length ? "good" : "warn");
  const sum = all.reduce((a, c) => a + (c.status ? c.status.dirty_bytes + c.status.zero_bytes : 0), 0);
  set("facts", `${all.length} caches, ${size(sum)} dirty; sockets in ${fleet.directory}`);
  $("caches").replaceChildren(...all.map(card));
  all.forEach(c => { if (c.status) before[c.name] = c.status; });
  document.documentElement.dataset.ready = "1";
}
const stream = new EventSource("/api/v1/events");
stream.addEventListener("fleet", e => show(JSON.parse(e.data)));
stream.onerror = () => { set("state", "no answer; trying again"); $("state").className = "pill bad"; };
