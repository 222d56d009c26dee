// An explorable on a page without Python: the front end of anywidget (anywidget.dev/en/afm) as far as it needs one.

const same = (a, b) => Object.is(a, b) || JSON.stringify(a) === JSON.stringify(b);

/** What a widget's module reads, changes and listens to. What it saves or sends reaches nobody. */
function makeModel(state) {
  const heard = new Map(); // event: callbacks
  const tell = (event, ...given) => [...(heard.get(event) ?? [])].forEach((callback) => callback(...given));
  const model = {
    get: (name) => state[name],
    set(name, value) {
      if (same(state[name], value)) return;
      state[name] = value;
      tell(`change:${name}`, model, value, {});
      tell("change", model, {});
    },
    on(events, callback) {
      for (const event of events.split(/\s+/)) heard.set(event, [...(heard.get(event) ?? []), callback]);
    },
    off(events = null, callback = null) {
      for (const event of events?.split(/\s+/) ?? [...heard.keys()]) {
        const kept = (heard.get(event) ?? []).filter((other) => callback !== null && other !== callback);
        heard.set(event, kept);
      }
    },
    save_changes() {},
    send() {},
  };
  return model;
}

/** Shows what a widget's module exports in `el`; returns its model, and how to stop it. */
export async function start(exported, state, el) {
  const stopped = new AbortController();
  const model = makeModel(state);
  const given = { model, signal: stopped.signal, experimental: { invoke: () => Promise.reject(new Error("no kernel")) } };
  const ends = [];
  const stop = () => {
    stopped.abort();
    ends.splice(0).reverse().forEach((end) => typeof end === "function" && end());
  };
  try {
    const widget = typeof exported === "function" ? await exported() : exported;
    ends.push(await widget.initialize?.(given));
    ends.push(await widget.render?.({ ...given, el }));
  } catch (error) {
    stop();
    throw error;
  }
  return { model, stop };
}
