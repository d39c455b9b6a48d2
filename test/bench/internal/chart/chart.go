// Package chart draws series into pictures.
package chart

import (
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"github.com/tasker-go/tasker/test/bench/internal/report"
)

// Snapshot draws rates over time with the span in which a snapshot was held
// into a PNG file.
func Snapshot(file string, series []report.Series, from, to time.Duration) error {
	p := plot.New()
	p.Title.Text = "Rate while an old snapshot is held (grey)"
	p.X.Label.Text, p.Y.Label.Text = "seconds", "tasks per second"
	p.Y.Min = 0
	p.Legend.Top = true
	if err := addSpan(p, series, from, to); err != nil { // below the lines
		return err
	}
	p.Add(plotter.NewGrid())
	for i, s := range series {
		line, err := plotter.NewLine(pointsOf(s))
		if err != nil {
			return fmt.Errorf("draw %s: %w", s.Name, err)
		}
		line.Color, line.Width = plotutil.Color(i), vg.Points(1)
		p.Add(line)
		p.Legend.Add(s.Name, line)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return fmt.Errorf("make the folder of the picture: %w", err)
	}
	if err := p.Save(24*vg.Centimeter, 10*vg.Centimeter, file); err != nil {
		return fmt.Errorf("write the picture: %w", err)
	}
	return nil
}

func pointsOf(s report.Series) plotter.XYs {
	points := make(plotter.XYs, len(s.Points))
	for i, at := range s.Points {
		points[i] = plotter.XY{X: at.At.Seconds(), Y: at.Value}
	}
	return points
}

// addSpan shades the time from one moment to another, as high as the series.
func addSpan(p *plot.Plot, series []report.Series, from, to time.Duration) error {
	top := 0.0
	for _, s := range series {
		for _, at := range s.Points {
			top = max(top, at.Value)
		}
	}
	left, right := from.Seconds(), to.Seconds()
	span, err := plotter.NewPolygon(plotter.XYs{{X: left}, {X: right}, {X: right, Y: top}, {X: left, Y: top}})
	if err != nil {
		return fmt.Errorf("draw the span: %w", err)
	}
	span.Color, span.Width = color.Gray{Y: 230}, 0
	p.Add(span)
	return nil
}
