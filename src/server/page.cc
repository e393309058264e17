#include "server/page.h"

namespace quire {

namespace {

// Text is only ever set as textContent: an answer can hold no markup of its own.
constexpr std::string_view kHtml = R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Quire</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 48rem; padding: 1rem;
       color: #222; background: #fff; display: flex; flex-direction: column; height: 94vh; }
header { display: flex; gap: .5rem; align-items: baseline; }
header h1 { font-size: 1.1rem; margin: 0; flex: 1; }
#log { flex: 1; overflow-y: auto; padding: .5rem 0; }
.turn { white-space: pre-wrap; overflow-wrap: anywhere; margin: .6rem 0; }
.user { background: #eef3fb; border-radius: .6rem; padding: .4rem .8rem; }
.thought { color: #888; font-size: .9em; }
.error { color: #b00020; }
form { display: flex; gap: .5rem; }
textarea { flex: 1; font: inherit; height: 3.2rem; resize: vertical; padding: .4rem; }
button, input { font: inherit; padding: .3rem .7rem; }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #1b1b1d; } .user { background: #2a3140; }
  textarea, button, input { color: inherit; background: #2a2a2d; border: 1px solid #555; }
}
</style></head><body>
<header><h1 id="title">Quire</h1>
<input id="key" type="password" placeholder="API key, if any" autocomplete="off">
<button id="clear" type="button">New chat</button></header>
<div id="log" role="log" aria-live="polite"></div>
<form id="form"><textarea id="text" placeholder="Write a message" autofocus></textarea>
<button id="send">Send</button></form>
<script>
const $ = (id) => document.getElementById(id);
let messages = [], model = null, running = null;
const headers = () => {
  const out = { 'Content-Type': 'application/json' };
  if ($('key').value) out['Authorization'] = 'Bearer ' + $('key').value;
  return out;
};
const turn = (kind, text) => {
  const node = document.createElement('div');
  node.className = 'turn ' + kind;
  node.textContent = text;
  $('log').append(node);
  $('log').scrollTop = $('log').scrollHeight;
  return node;
};
async function find_model() {
  const answer = await fetch('/v1/models', { headers: headers() });
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error.message);
  model = body.data[0].id;
  $('title').textContent = 'Quire: ' + model;
}
async function ask() {
  if (!model) await find_model();
  running = new AbortController();
  const answer = await fetch('/v1/chat/completions', {
    method: 'POST', headers: headers(), signal: running.signal,
    body: JSON.stringify({ model, messages, stream: true }) });
  if (!answer.ok) throw new Error((await answer.json()).error.message);
  const thought = turn('thought', ''), node = turn('assistant', '');
  let rest = '';
  for await (const text of chunks(answer.body)) {
    const events = (rest + text).split('\n\n');
    rest = events.pop();
    for (const event of events) show(event.slice(6), thought, node);
  }
  messages.push({ role: 'assistant', content: node.textContent });
}
async function* chunks(body) {
  const reader = body.getReader(), decoder = new TextDecoder();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield decoder.decode(value, { stream: true });
  }
}
function show(data, thought, node) {
  if (data === '[DONE]') return;
  const event = JSON.parse(data);
  if (event.error) throw new Error(event.error.message);
  if (!event.choices.length) return;
  const delta = event.choices[0].delta;
  if (delta.reasoning_content) thought.textContent += delta.reasoning_content;
  if (delta.content) node.textContent += delta.content;
  $('log').scrollTop = $('log').scrollHeight;
}
$('form').addEventListener('submit', async (event) => {
  event.preventDefault();
  if (running) { running.abort(); return; }
  const text = $('text').value.trim();
  if (!text) return;
  $('text').value = '';
  messages.push({ role: 'user', content: text });
  turn('user', text);
  $('send').textContent = 'Stop';
  try { await ask(); } catch (error) {
    if (error.name !== 'AbortError') turn('error', error.message);
  }
  running = null;
  $('send').textContent = 'Send';
});
$('text').addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && !event.shiftKey) {
    event.preventDefault();
    $('form').requestSubmit();
  }
});
$('clear').addEventListener('click', () => { messages = []; $('log').replaceChildren(); });
find_model().catch(() => {});
</script></body></html>
)html";

}  // namespace

std::string_view page_html() { return kHtml; }

}  // namespace quire
