// Sizes, rates and times for people. Sizes are in binary units and rates in decimal bits, as `longhaul jobs` shows them.

const SIZES = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];
const RATES = ['bit/s', 'kbit/s', 'Mbit/s', 'Gbit/s', 'Tbit/s'];

const formats = new Map<string, Intl.NumberFormat>();

/** A number with that many digits behind the point. */
export function decimal(value: number, digits: number, locale: string): string {
  // Formats are kept: making one costs more than using it, and lists show thousands.
  const key = `${locale} ${String(digits)}`;
  let format = formats.get(key);
  if (format === undefined) {
    format = new Intl.NumberFormat(locale, { minimumFractionDigits: digits, maximumFractionDigits: digits });
    formats.set(key, format);
  }
  return format.format(value);
}

function scaled(value: number, step: number, units: string[], locale: string): string {
  let unit = 0;
  let rest = value;
  // 999.5 and more would show as 1000 of the smaller unit.
  while (unit + 1 < units.length && rest >= step - 0.5) {
    rest /= step;
    unit += 1;
  }
  const digits = unit === 0 || rest >= 99.95 ? 0 : 1;
  return `${decimal(rest, digits, locale)} ${units[unit] ?? ''}`;
}

/** `1.5 GiB` */
export function formatSize(bytes: number, locale: string): string {
  return scaled(Math.max(0, bytes), 1024, SIZES, locale);
}

/** `942 Mbit/s`, from bits per second */
export function formatRate(bps: number, locale: string): string {
  return scaled(Number.isFinite(bps) ? Math.max(0, bps) : 0, 1000, RATES, locale);
}

/** `4,211` */
export function formatCount(count: number, locale: string): string {
  return decimal(count, 0, locale);
}

/** `17 s`, `4 min 05 s`, `3 h 07 min`, `2 d 4 h` */
export function formatDuration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  const pad = (value: number): string => String(value).padStart(2, '0');
  if (whole < 60) return `${String(whole)} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${String(minutes)} min ${pad(whole % 60)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${String(hours)} h ${pad(minutes % 60)} min`;
  return `${String(Math.floor(hours / 24))} d ${String(hours % 24)} h`;
}

const moments = new Map<string, Intl.DateTimeFormat>();

/** A moment (RFC 3339) in this machine's time zone, to the second if asked; empty if it is none. */
export function formatMoment(moment: string | null | undefined, locale: string, seconds = false): string {
  if (moment === null || moment === undefined) return '';
  const date = new Date(moment);
  if (Number.isNaN(date.getTime())) return '';
  const key = `${locale} ${String(seconds)}`;
  let format = moments.get(key);
  if (format === undefined) {
    format = new Intl.DateTimeFormat(locale, {
      year: 'numeric',
      month: '2-digit',
      day: '2-digit',
      hour: '2-digit',
      minute: '2-digit',
      ...(seconds ? { second: '2-digit' } : {}),
    });
    moments.set(key, format);
  }
  return format.format(date);
}

/** Seconds until all that was found is in place; none if that is not known. */
export function secondsLeft(progress: {
  bytes?: number;
  bytes_found?: number;
  walk_complete?: boolean;
  bps?: number;
}): number | null {
  const { bytes = 0, bytes_found = 0, walk_complete = false, bps = 0 } = progress;
  if (!walk_complete || bps <= 0 || bytes_found < bytes) return null;
  return ((bytes_found - bytes) * 8) / bps;
}
