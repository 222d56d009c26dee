// JupyterLab and Notebook 7 load this file. With it, the explorables and questions of a saved notebook live without a
// kernel, and the notebook keeps what a reader does to them. This file is a container as JupyterLab expects one (webpack's
// module federation), written by hand: it shares no module and needs none, so nothing has to build it.

"use strict";

(() => {
  const START = "application/vnd.mha-lab.explorable+json"; // _widget.py: the module's name and its states
  const WIDGET = "application/vnd.jupyter.widget-view+json";
  const PATIENCE = 1000; // ms until a picture shows that its widget is not there yet
  const PAUSE = 300; // ms after which a change goes into the notebook

  const folder = new URL("explore/", document.currentScript.src);
  const load = (name) => {
    if (!/^[a-z_]+$/.test(name)) throw new Error(`no explorable has the name ${name}`); // no other file of the server
    return import(new URL(`${name}.js`, folder));
  };

  /** A state that another version has saved may lack what a module reads: then no number is shown that nobody computed. */
  const whole = (state) => new Proxy(state, { get(all, name) {
    if (name in all) return all[name];
    throw new Error(`the saved state has no ${String(name)}`);
  } });

  /** The explorable of an output, from its state alone; its picture until it is seen, and where anything fails. */
  function makeAlone(rendermime, output) {
    const { module, state } = output.data[START];
    const el = document.createElement("div");
    const still = rendermime.createRenderer("image/png");
    still.renderModel(output);
    el.append(still.node);
    const alone = { el, model: null, stop: () => seen.disconnect() };
    const seen = new IntersectionObserver(async (all) => {
      if (!all.some((each) => each.isIntersecting)) return;
      seen.disconnect();
      try {
        const [{ start }, { default: exported }] = await Promise.all([load("alone"), load(module)]);
        const live = document.createElement("div");
        Object.assign(alone, await start(exported, whole(state), live));
        el.replaceChildren(live);
      } catch (error) {
        console.error(`explorable ${module}:`, error);
      }
    });
    seen.observe(el);
    return alone;
  }

  /** A renderer of the widget manager's own class, since it hands itself to no other; `pending` has what to do before a save. */
  function makeRenderer(rendermime, pending) {
    const kind = rendermime.mimeTypes.includes(WIDGET) ? WIDGET : "image/png"; // the manager can be switched off
    const renderer = rendermime.createRenderer(kind);
    const find = renderer.renderModel.bind(renderer);
    const lives = () => kind === WIDGET && renderer.widgets.length > 0;
    let [output, name, alone] = [null, "", null];

    const end = () => {
      alone?.stop();
      alone?.el.remove();
      alone = null;
    };
    const show = () => {
      alone ??= makeAlone(rendermime, output);
      if (alone.el.parentNode !== renderer.node) renderer.node.replaceChildren(alone.el); // not what the manager wrote
      renderer.removeClass("jupyter-widgets");
    };
    renderer.renderModel = async (given) => {
      const { [START]: start, [WIDGET]: view } = given.data;
      const other = name !== `${start.module} ${view?.model_id}`;
      [output, name] = [given, `${start.module} ${view?.model_id}`];
      if (other) end();
      else if (lives()) return;
      if (alone?.el.parentNode === renderer.node) { // changed here, or in another view of this output
        for (const [key, value] of Object.entries(start.state)) alone.model?.set(key, value);
        return;
      }
      const found = given.trusted && kind === WIDGET && view?.model_id ? find(given).then(lives) : false;
      // Without a kernel, the manager never answers. With a new one, it says that there is no such model.
      for (const answer of [Promise.race([found, new Promise((done) => setTimeout(done, PATIENCE))]), found]) {
        if (await answer) return end();
        if (given === output) show();
      }
    };

    let [touched, model, timer] = [false, null, null];
    const store = () => {
      clearTimeout(timer);
      timer = null;
      pending.delete(store);
      const { [START]: start, ...others } = output.data;
      const now = ([key, old]) => {
        const value = model.get(key);
        return [key, value === undefined || value instanceof DataView ? old : value]; // bytes do not change
      };
      const state = Object.fromEntries(Object.entries(start.state).map(now));
      if (JSON.stringify(state) !== JSON.stringify(start.state)) output.setData({ data: { ...others, [START]: { ...start, state } } });
    };
    // What plays by itself when it is opened changes no notebook.
    for (const event of ["click", "input", "keydown", "pointerdown"]) {
      renderer.node.addEventListener(event, () => { touched = true; }, true);
    }
    renderer.node.addEventListener("mha-state", ({ detail }) => {
      model = detail;
      if (!touched) return;
      pending.add(store);
      timer ??= setTimeout(store, PAUSE);
    });
    renderer.disposed.connect(() => {
      clearTimeout(timer);
      pending.delete(store);
      end();
    });
    return renderer;
  }

  /** Another version of Python, which JupyterLab notes as soon as a notebook is open, is no change by the reader. */
  function isOnlyAVersion({ key, oldValue, newValue }) {
    const same = (part) => JSON.stringify(oldValue?.[part]) === JSON.stringify(newValue?.[part]);
    const parts = Object.keys({ ...oldValue, ...newValue }).filter((part) => part !== "version");
    return key === "language_info" && parts.every(same);
  }

  const plugin = {
    id: "mha-lab:explorables",
    autoStart: true,
    activate(app) {
      const style = document.createElement("link");
      Object.assign(style, { rel: "stylesheet", href: new URL("jupyter.css", folder) });
      document.head.append(style);
      app.docRegistry.addWidgetExtension("Notebook", {
        createNew({ content: { rendermime } }, context) {
          const pending = new Set();
          const makes = { safe: true, mimeTypes: [START], createRenderer: () => makeRenderer(rendermime, pending) };
          rendermime.addFactory(makes, -20); // before the widget's -10
          const save = (_, state) => { if (state === "started") [...pending].forEach((store) => store()); };
          context.saveState.connect(save);
          const note = (model, change) => { // before the model counts as changed
            if (!model.dirty && isOnlyAVersion(change)) queueMicrotask(() => { model.dirty = false; });
          };
          context.model.metadataChanged.connect(note);
          return { isDisposed: false, dispose() {
            context.saveState.disconnect(save);
            context.model.metadataChanged.disconnect(note);
          } };
        },
      });
    },
  };

  (globalThis._JUPYTERLAB ??= {})["mha-lab"] = {
    init() {},
    get: async () => () => ({ __esModule: true, default: plugin }),
  };
})();
