"use strict";
// Elements, and texts of the target as they may be shown. Whatever a name holds is text: nothing here parses markup.
const make = (tag, attributes = {}, ...children) => {
  const svg = ["svg", "g", "rect", "path", "text", "title", "defs", "marker"].includes(tag);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
};

// JSON whose strings are written out as the tool writes names to a terminal: a control character, a mark that turns the direction
// of writing, or one that nobody sees is shown as its number.
const shown = (json) => {
  const named = { b: 8, f: 12 };
  const number = (value) => `\\\\u{${value.toString(16)}}`;
  const escape = /\\(?:u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|u([0-9a-f]{4})|(.))/gi;
  return json.replace(escape, (all, high, low, code, letter) => {
    if (high) return number(0x10000 + ((parseInt(high, 16) & 0x3ff) << 10) + (parseInt(low, 16) & 0x3ff));
    if (code) return number(parseInt(code, 16));
    return "nrt".includes(letter) ? `\\\\${letter}` : letter in named ? number(named[letter]) : all;
  }).replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu, (letter) => number(letter.codePointAt(0)));
};
