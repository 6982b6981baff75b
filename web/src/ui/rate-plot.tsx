import { useEffect, useRef } from 'preact/hooks';
import type uPlot from 'uplot';
import type { RateSeries } from '../model/series';
import { clock, language, rate, t, theme } from '../state/settings';
import { Name } from './name';

const HEIGHT = 200;
/** Colours of the routes, distinct in both colour schemes. They repeat from the ninth route on. */
const COLOURS = ['#3b82c4', '#d97706', '#2f9e6e', '#b5479b', '#8a6d3b', '#6b5fd0', '#c2410c', '#0e7490'];

function colour(index: number): string {
  return COLOURS[index % COLOURS.length] ?? '#888888';
}

/** Plot of the rates of a job's routes. Its legend is our own, because it shows untrusted text. */
export function RatePlot({ series, label }: { series: RateSeries; label: string }) {
  const element = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const routes = [...series.routes.keys()];
  const shape = JSON.stringify([routes, theme.value, language.value]);

  useEffect(() => {
    const target = element.current;
    if (!target) return;
    let wanted = true;
    let observer: ResizeObserver | null = null;
    // Loaded on demand. If it cannot be loaded, as with some language tags of browsers, the legend
    // still shows the rates.
    import('uplot')
      .then(({ default: Plot }) => {
        if (!wanted) return;
        const made = new Plot(optionsFor(target, routes.length), columns(series), target);
        plot.current = made;
        observer = new ResizeObserver(() => { made.setSize({ width: target.clientWidth, height: HEIGHT }); });
        observer.observe(target);
      })
      .catch((error: unknown) => { console.warn('the plot cannot be shown', error); });
    return () => {
      wanted = false;
      observer?.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape]);

  // The series grows in place, so its last time shows whether there are new samples.
  const last = series.times[series.times.length - 1];
  useEffect(() => {
    plot.current?.setData(columns(series));
  }, [last, shape]);

  return (
    <figure>
      <div ref={element} class="plot" role="img" aria-label={label} />
      <figcaption>
        <ul class="legend">
          {routes.map((route, index) => (
            <li key={route}>
              <span class="swatch" style={{ backgroundColor: colour(index) }} />
              {route === '' ? t('job.allRoutes') : <Name text={route} />}{' '}
              {rate(series.routes.get(route)?.at(-1) ?? 0)}
            </li>
          ))}
        </ul>
      </figcaption>
    </figure>
  );
}

function optionsFor(target: HTMLElement, routes: number): uPlot.Options {
  const style = getComputedStyle(target);
  const axis: uPlot.Axis = {
    stroke: style.color,
    grid: { stroke: style.borderTopColor, width: 1 },
    ticks: { stroke: style.borderTopColor, width: 1 },
  };
  return {
    width: target.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    scales: { y: { range: (_, __, highest) => [0, Math.max(1, highest * 1.05)] } },
    axes: [
      { ...axis, space: 110, values: (_, times) => times.map((time) => clock(time)) },
      { ...axis, size: 90, values: (_, rates) => rates.map((value) => rate(value)) },
    ],
    series: [{}, ...Array.from({ length: routes }, (_, index) => ({ stroke: colour(index), width: 2, spanGaps: false }))],
  };
}

function columns(series: RateSeries): uPlot.AlignedData {
  return [series.times, ...series.routes.values()];
}
