const http = require("http"), crypto = require("crypto"), zlib = require("zlib"), {Worker} = require("worker_threads");
const server = http.createServer((_, answer) => answer.end(zlib.gzipSync(crypto.randomBytes(1000))));
server.listen("/tmp/socket", () => http.get({socketPath: "/tmp/socket"}, answer => {
  answer.resume();
  answer.on("end", () => { console.log("ready"); process.exit(0); });
}));
