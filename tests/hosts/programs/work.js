// Workers, thread pool, child processes, a heap that the collector has to work on.
const { Worker, isMainThread, parentPort } = require('worker_threads');
const { spawnSync, execFile, fork } = require('child_process');
const crypto = require('crypto');
const zlib = require('zlib');

function churn(rounds) {
  let sum = 0;
  let kept = [];
  for (let i = 0; i < rounds; i++) {
    kept.push({ i, text: 'y'.repeat(i % 100), list: [i, i + 1] });
    if (kept.length > 5000) kept = [];
    sum += kept.length;
  }
  return sum;
}

if (!isMainThread) {
  parentPort.postMessage(churn(200000));
} else if (process.argv[2] === 'child') {
  process.send(churn(1000));
  process.exit(6);
} else {
  main();
}

async function main() {
  console.log('churn', churn(500000));
  console.log('workers', await Promise.all([1, 2].map(() => new Promise((done) => new Worker(__filename).on('message', done)))));
  const keys = await Promise.all([1, 2, 3, 4].map((n) => new Promise((done) =>
    crypto.pbkdf2('secret', `salt${n}`, 20000, 32, 'sha256', (_, key) => done(key.toString('hex').slice(0, 8))))));
  console.log('keys', keys.join(' '));
  const packed = zlib.deflateSync(Buffer.alloc(4 << 20, 'some text '));
  console.log('zlib', zlib.inflateSync(packed).length);
  console.log('probe', spawnSync(process.env.PROBE).status);
  console.log('shell', await new Promise((done) => execFile('/bin/sh', ['-c', 'echo out; exit 3'], (error, out) => done([error.code, out.trim()]))));
  const child = fork(__filename, ['child']);
  child.on('message', (value) => console.log('message', value));
  child.on('exit', (code) => {
    console.log('exit', code);
    process.on('SIGUSR2', () => { console.log('signal'); process.exit(5); });
    setInterval(() => {}, 1000);
    process.kill(process.pid, 'SIGUSR2');
  });
}
