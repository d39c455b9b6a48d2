/** JSON, with forms for bytes, and for numbers that a number of JavaScript would change. */

import { Buffer } from "node:buffer";

/** A value with a JSON form. */
export type Json = unknown;

const maxType = 255;
const token = "[!#$%&'*+.^_`|~0-9A-Za-z-]+";
const mediaType = new RegExp(`^${token}/${token}( *; *${token}=(${token}|"([ !#-\\[\\]-~]|\\\\[ -~])*"))*$`);

/**
 * Opaque bytes with their media type, where everything else is JSON: as the result of a handler, or anywhere inside of
 * results, contexts and checkpoints. They are stored in base64.
 */
export class Bytes {
  constructor(
    readonly data: Uint8Array,
    readonly contentType = "application/octet-stream",
  ) {
    if (!(data instanceof Uint8Array)) throw new TypeError(`invalid data of type ${typeof data}: want a Uint8Array`);
    if (contentType.length > maxType || !mediaType.test(contentType)) {
      throw new TypeError(
        `invalid contentType ${JSON.stringify(contentType.slice(0, 64))}: want a media type of at most ${maxType} bytes, such as image/png`,
      );
    }
  }

  /** The data as they are on the wire. */
  get base64(): string {
    return Buffer.from(this.data.buffer, this.data.byteOffset, this.data.byteLength).toString("base64");
  }

  toJSON(): Json {
    return { $bytes: this.base64, content_type: this.contentType };
  }
}

const aNumber = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;

/**
 * Marks exact numbers inside of JSON of this process. It is random and never leaves it, so no document can contain
 * it.
 */
const mark = `$${crypto.randomUUID()}`;

/** How the running encoding treats decimals: a plain one only notes that it has met one. */
let exact = false,
  met = false;

/**
 * A decimal that a number would change, such as 1.000000000000000001: its digits, and no arithmetic. Inside of
 * contexts, results, checkpoints and events it is a JSON number.
 */
export class Decimal {
  /** The digits, as a JSON number. */
  readonly text: string;

  constructor(text: string | number | bigint) {
    this.text = String(text);
    aNumber.lastIndex = 0;
    if (aNumber.exec(this.text)?.[0] !== this.text) {
      throw new TypeError(`invalid decimal ${JSON.stringify(this.text.slice(0, 64))}: want a JSON number`);
    }
  }

  /** The nearest number. */
  toNumber(): number {
    return Number(this.text);
  }

  toString(): string {
    return this.text;
  }

  /** Its digits as a text, where other code than this package encodes it: JSON.stringify has no form for the number. */
  toJSON(): string {
    met = true;
    return exact ? mark + this.text : this.text;
  }

  /** In arithmetic and comparisons it is refused, because digits would be lost. */
  [Symbol.toPrimitive](hint: string): string {
    if (hint === "string") return this.text;
    throw new TypeError(`convert the decimal ${this.text.slice(0, 64)}: want toNumber() or text`);
  }
}

/** JSON that is encoded already: what it was made of may change. */
export class Encoded {
  constructor(readonly text: string) {}

  get value(): Json {
    return parsed(this.text);
  }
}

/**
 * The JSON text of a value: BigInt and Decimal are numbers with all of their digits. Throws for what has no JSON
 * form.
 */
export function encoded(value: Json): string {
  if (value instanceof Encoded) return value.text;
  let text: string | undefined,
    failed = false;
  met = false;
  try {
    text = JSON.stringify(value);
  } catch {
    failed = true; // a BigInt, or no JSON at all, which the second attempt says
  }
  if (failed || met || /(?:^|[:[,])null/.test(text ?? "")) text = exactly(value); // NaN becomes null without a word
  if (text === undefined) throw new TypeError(`a value of type ${typeof value} is no JSON`);
  return text;
}

function exactly(value: Json): string | undefined {
  exact = true;
  try {
    const text = JSON.stringify(value, (key, v: Json) => {
      if (typeof v === "bigint") return `${mark}${v}`;
      if (typeof v === "number" && !Number.isFinite(v))
        throw new TypeError(`${key === "" ? "the value" : JSON.stringify(key)} is ${v}, which is no JSON number`);
      return v;
    }) as string | undefined;
    return text?.replaceAll(new RegExp(`"\\${mark}([-+.0-9eE]*)"`, "g"), "$1");
  } finally {
    exact = false;
  }
}

/** The JSON of an object whose fields may be encoded already; undefined ones are left out. */
export function objectOf(fields: Record<string, Json>): Encoded {
  const parts = Object.entries(fields)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `${JSON.stringify(name)}:${encoded(value)}`);
  return new Encoded(`{${parts.join(",")}}`);
}

/** A copy of a value as it arrives elsewhere, which later changes of the value do not reach. */
export function snapshot(value: Json): Json {
  return parsed(encoded(value));
}

/** Numbers of so many digits, or with such exponents, may not fit into a number. */
const suspicious = /(?:^|[[:,\s])-?(?:\d[\d.]{15}|[\d.]+[eE][+-]?\d{3})/;

/**
 * The value of a JSON text, with Bytes in it. An integer that a number would change is a BigInt, another number is a
 * Decimal. A reviver is slow, and most texts have none of these.
 */
export function parsed(text: string): Json {
  const doc = suspicious.test(text) ? marked(text) : text;
  if (doc === text && !/\$bytes|\\u/.test(text)) return JSON.parse(text);
  return JSON.parse(doc, (_key, value: Json) => {
    if (typeof value !== "object" || value === null) return value;
    return Object.hasOwn(value, mark) ? exactNumber((value as Record<string, string>)[mark] ?? "") : bytesOrSame(value);
  });
}

/** The text with an object in place of each number that would lose digits. */
function marked(text: string): string {
  let made = "",
    from = 0;
  for (let at = 0; at < text.length; ) {
    const c = text.charCodeAt(at);
    if (c === 0x22) {
      for (at++; at < text.length && text.charCodeAt(at) !== 0x22; at++) if (text.charCodeAt(at) === 0x5c) at++;
      at++;
    } else if (c === 0x2d || (c >= 0x30 && c <= 0x39)) {
      aNumber.lastIndex = at;
      const found = aNumber.exec(text)?.[0] ?? "-"; // JSON.parse refuses what is none
      if (typeof exactNumber(found) !== "number") {
        made += `${text.slice(from, at)}{"${mark}":"${found}"}`;
        from = at + found.length;
      }
      at += found.length;
    } else at++;
  }
  return from === 0 ? text : made + text.slice(from);
}

/** A number, unless its text would have other digits. */
function exactNumber(text: string): number | bigint | Decimal {
  const n = Number(text),
    same = String(n);
  if (text === "-" || same === text || (Number.isFinite(n) && digitsOf(same) === digitsOf(text))) return n;
  return /^-?\d+$/.test(text) ? BigInt(text) : new Decimal(text);
}

/** The digits and the exponent of a number: the same for equal values. */
function digitsOf(text: string): string {
  const [mantissa = "", exponent = "0"] = text.toLowerCase().split("e"),
    [whole = "", fraction = ""] = mantissa.replace("-", "").split(".");
  const digits = whole + fraction;
  let first = 0,
    last = digits.length;
  while (first < last && digits[first] === "0") first++;
  while (last > first && digits[last - 1] === "0") last--;
  if (first === last) return "0";
  return `${mantissa.startsWith("-") ? "-" : ""}${digits.slice(first, last)}e${BigInt(exponent.replace("+", "")) + BigInt(digits.length - last - fraction.length)}`;
}

function bytesOrSame(value: object): Json {
  if (!(Object.hasOwn(value, "$bytes") && Object.hasOwn(value, "content_type")) || Object.keys(value).length !== 2)
    return value;
  const { $bytes: text, content_type: contentType } = value as { $bytes: Json; content_type: Json };
  if (typeof text !== "string" || typeof contentType !== "string") return value;
  try {
    const found = new Bytes(new Uint8Array(Buffer.from(text, "base64")), contentType); // a copy: small buffers share memory
    return found.base64 === text ? found : value;
  } catch {
    return value;
  }
}
