// The proxy of the hub: configurable-http-proxy, and what it leaves open. start.py copies this file beside
// node_modules and starts it; its settings are one JSON argument.
import { readFileSync } from "node:fs";
import http from "node:http";
import ConfigurableProxy from "configurable-http-proxy";
import { defaultLogger } from "configurable-http-proxy/lib/log.js";

const asked = JSON.parse(process.argv[2]);
const authToken = process.env.CONFIGPROXY_AUTH_TOKEN;
const { hostRouting, errorTarget } = asked;
const options = { authToken, hostRouting, errorTarget, xfwd: true, log: defaultLogger({ level: "warn" }) };
if (asked.cert) options.ssl = { cert: readFileSync(asked.cert), key: readFileSync(asked.key) };
const proxy = new ConfigurableProxy(options);

// A connection to the hub or to a server carries one request and is closed. If it were used again, whatever
// a student's request left in it would become the beginning of somebody else's request.
proxy.httpAgent = new http.Agent();

// Answer what is refused at once, without reading the rest.
function guard(server, refused) {
  const [serve] = server.listeners("request");
  server.removeAllListeners("request");
  server.on("request", (request, response) => {
    const status = refused(request);
    if (!status) return serve(request, response);
    response.writeHead(status, { Connection: "close" }).end();
    response.on("finish", () => request.destroy());
  });
}

// configurable-http-proxy sends such a body on as if the request had none. No browser sends one.
guard(proxy.proxyServer, (request) => (request.headers["transfer-encoding"] ? 411 : 0));
// It reads the whole of a request that changes the routes before it looks at the token.
guard(proxy.apiServer, (request) => (request.headers.authorization === `token ${authToken}` ? 0 : 403));

// A student's page can set cookies for all names, so many that each request is too long. Delete them.
const CURE = "This request was too long, perhaps because of its cookies. They are deleted: load the page again.";
proxy.proxyServer.on("clientError", (error, socket) => {
  const status = error.code === "HPE_HEADER_OVERFLOW" ? 431 : 400;
  const said = status === 431 ? CURE : "";
  if (socket.writable) {
    socket.end(
      `HTTP/1.1 ${status} ${http.STATUS_CODES[status]}\r\nConnection: close\r\nContent-Type: text/plain\r\n` +
        (said && 'Clear-Site-Data: "cookies"\r\n') + `Content-Length: ${said.length}\r\n\r\n${said}`,
    );
  }
});

proxy.proxyServer.listen(asked.port, asked.ip);
proxy.apiServer.listen(asked.apiPort, "127.0.0.1");
process.on("uncaughtException", (error) => options.log.error(error.stack));  // one request is no reason to end
process.on("SIGTERM", () => process.exit(0));
