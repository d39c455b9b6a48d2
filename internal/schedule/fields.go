package schedule

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
)

// descriptors are the expressions that names stand for.
var descriptors = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// fields are the five fields of an expression. A set has one bit for each number.
type fields struct {
	minutes, hours, months uint64
	days                   monthDays
	weekdays               weekDays
}

// monthDays is the field of the day of the month.
type monthDays struct {
	set     uint64 // 1 to 31
	every   bool   // "*": the field restricts nothing
	nearest uint64 // 15W: the weekday nearest to this day
	before  uint64 // L-3: so many days before the last one; L: 0
	lastOf  bool   // LW: the last weekday
}

// weekDays is the field of the day of the week.
type weekDays struct {
	set   uint64    // 0 to 6
	every bool      // "*": the field restricts nothing
	last  uint64    // 5L: the last Friday
	nth   [6]uint64 // 5#3: the third Friday is bit 5 of nth[3]
}

// field describes the numbers of one field to its reader and to the author of an expression.
type field struct {
	name        string
	least, most int
	names       []string // of the numbers from least on
	want        string   // what else is accepted
}

var (
	minuteField = field{name: "minute", most: 59}
	hourField   = field{name: "hour", most: 23}
	dayField    = field{name: "day of the month", least: 1, most: 31, want: ", L, L-3, 15W or LW"}
	monthField  = field{name: "month", least: 1, most: 12, want: " or a name such as JAN",
		names: []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}}
	weekdayField = field{name: "day of the week", most: 6, want: ", 7, a name such as MON, 5L or 5#3",
		names: []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}}
)

// parseFields reads five fields, or a descriptor.
func parseFields(expression string) (*fields, error) {
	if strings.HasPrefix(expression, "@") {
		known, found := descriptors[expression]
		if !found {
			return nil, invalidCron("expression", expression, "@hourly, @daily, @weekly, @monthly, @yearly or @every 5m")
		}
		expression = known
	}
	texts := strings.Fields(expression)
	if len(texts) != 5 {
		return nil, invalidCron("expression", expression,
			"5 fields: minute, hour, day of the month, month, day of the week")
	}
	f := &fields{}
	var err error
	read := func(i int, of *field, special func(string) bool) (set uint64, every bool) {
		if err == nil {
			set, every, err = of.list(texts[i], special)
		}
		return set, every
	}
	f.minutes, _ = read(0, &minuteField, nil)
	f.hours, _ = read(1, &hourField, nil)
	f.days.set, f.days.every = read(2, &dayField, f.days.special)
	f.months, _ = read(3, &monthField, nil)
	f.weekdays.set, f.weekdays.every = read(4, &weekdayField, f.weekdays.special)
	return f, err
}

// list reads a whole field. An element that special takes is not one of numbers. every says
// that an element is "*".
func (f *field) list(text string, special func(string) bool) (set uint64, every bool, err error) {
	found := false
	for element := range strings.SplitSeq(text, ",") {
		if element == "" {
			continue // "5," has always been accepted
		}
		found = true
		if special != nil && special(element) {
			continue
		}
		numbers, all, err := f.element(element)
		if err != nil {
			return 0, false, err
		}
		set, every = set|numbers, every || all
	}
	if !found {
		return 0, false, f.invalid(text, f.accepted())
	}
	return set, every, nil
}

// element reads "*", a number, a name or a range, with or without a step.
func (f *field) element(text string) (set uint64, every bool, err error) {
	span, stepText, stepped := strings.Cut(text, "/")
	step := 1
	if stepped {
		// A longer step than the field would run once a field, and not in its rhythm.
		size := f.most - f.least + 1
		if step, err = strconv.Atoi(stepText); err != nil || step < 1 || step > size {
			return 0, false, f.invalid(text, fmt.Sprintf("a step from 1 to %d", size))
		}
	}
	first, last, every, known := f.span(span)
	switch {
	case !known:
		return 0, false, f.invalid(text, f.accepted())
	case last < 0 && stepped:
		first, last = f.wrap(first), f.most // 5/15 is 5-59/15
	case last < 0:
		last = first
	case first > last:
		return 0, false, f.invalid(text, "a range that rises")
	}
	for n := first; n <= last; n += step {
		set |= 1 << f.wrap(n)
	}
	return set, every && step == 1, nil
}

// span reads the numbers of an element; last is -1 where it has one number only.
func (f *field) span(text string) (first, last int, every, known bool) {
	if text == "*" || text == "?" {
		return f.least, f.most, true, true
	}
	from, to, isRange := strings.Cut(text, "-")
	if first, known = f.number(from); !known || !isRange {
		return first, -1, false, known
	}
	last, known = f.number(to)
	if f.sunday(to) && first > 0 {
		last = 7 // the end of MON-SUN
	}
	return first, last, false, known
}

// number reads a number or a name. Sunday may be 7.
func (f *field) number(text string) (n int, known bool) {
	if i := slices.Index(f.names, strings.ToLower(text)); i >= 0 {
		return f.least + i, true
	}
	n, err := strconv.Atoi(text)
	most := f.most
	if f.weekly() {
		most = 7
	}
	return n, err == nil && text[0] != '-' && n >= f.least && n <= most
}

func (f *field) weekly() bool { return f.most == 6 }

// sunday says whether a text is the name of Sunday.
func (f *field) sunday(text string) bool { return f.weekly() && strings.EqualFold(text, f.names[0]) }

// wrap makes Sunday 0 where it is 7.
func (f *field) wrap(n int) int {
	if f.weekly() {
		return n % 7
	}
	return n
}

func (f *field) accepted() string {
	return fmt.Sprintf("%d to %d%s, a range, a list, or *", f.least, f.most, f.want)
}

func (f *field) invalid(text, want string) error { return invalidCron(f.name, text, want) }

func invalidCron(part, text, want string) error {
	return &ParseError{"cron", fmt.Sprintf("invalid %s %q: want %s", part, text, want)}
}

// special reads L, L-3, LW and 15W.
func (d *monthDays) special(element string) bool {
	text := strings.ToUpper(element)
	switch text {
	case "L":
		d.before |= 1
		return true
	case "LW":
		d.lastOf = true
		return true
	}
	if digits, found := strings.CutPrefix(text, "L-"); found {
		n, known := dayField.number(digits)
		known = known && n < dayField.most
		if known {
			d.before |= 1 << n
		}
		return known
	}
	digits, found := strings.CutSuffix(text, "W")
	n, known := dayField.number(digits)
	if found = found && known; found {
		d.nearest |= 1 << n
	}
	return found
}

// special reads 5L and 5#3.
func (w *weekDays) special(element string) bool {
	text := strings.ToUpper(element)
	if day, found := strings.CutSuffix(text, "L"); found {
		n, known := weekdayField.number(day)
		if known {
			w.last |= 1 << weekdayField.wrap(n)
		}
		return known
	}
	day, which, found := strings.Cut(text, "#")
	n, known := weekdayField.number(day)
	if !found || !known || len(which) != 1 || which < "1" || which > "5" {
		return false
	}
	w.nth[which[0]-'0'] |= 1 << weekdayField.wrap(n)
	return true
}

// month are the days of a month that the fields name, one bit for each.
func (f *fields) month(year int, month time.Month) uint64 {
	first := time.Date(year, month, 1, 0, 0, 0, 0, time.UTC)
	m := monthOf{last: first.AddDate(0, 1, -1).Day(), first: int(first.Weekday())}
	named, week := f.days.in(m), f.weekdays.in(m)
	// Where both fields restrict the day, either of them will do.
	if !f.days.every && !f.weekdays.every {
		return (named | week) & m.all()
	}
	return named & week & m.all()
}

// monthOf is a month: the number of its last day, and the day of the week of its first.
type monthOf struct{ last, first int }

// all are the days of the month.
func (m monthOf) all() uint64 { return (1<<m.last - 1) << 1 }

// weekday is the day of the week of a day.
func (m monthOf) weekday(day int) int { return (m.first + day - 1) % 7 }

// nearest is the day from Monday to Friday in the month that is nearest to a day.
func (m monthOf) nearest(day int) int {
	switch m.weekday(day) {
	case int(time.Saturday):
		if day == 1 {
			return day + 2
		}
		return day - 1
	case int(time.Sunday):
		if day == m.last {
			return day - 2
		}
		return day + 1
	}
	return day
}

// in are the days that the field names in a month.
func (d *monthDays) in(m monthOf) uint64 {
	days := d.set
	for n := d.before; n != 0; n &= n - 1 {
		if day := m.last - bits.TrailingZeros64(n); day > 0 {
			days |= 1 << day
		}
	}
	for n := d.nearest & m.all(); n != 0; n &= n - 1 {
		days |= 1 << m.nearest(bits.TrailingZeros64(n))
	}
	if d.lastOf {
		days |= 1 << m.nearest(m.last)
	}
	return days
}

// in are the days that the field names in a month.
func (w *weekDays) in(m monthOf) (days uint64) {
	for day := 1; day <= m.last; day++ {
		bit, week := uint64(1)<<m.weekday(day), (day+6)/7
		if w.set&bit != 0 || w.nth[week]&bit != 0 || w.last&bit != 0 && day+7 > m.last {
			days |= 1 << day
		}
	}
	return days
}

// longestPause is how many years may pass between two runs: February 29th is a certain day of
// the week each 28 years, and after 40 where a year such as 2100 is not a leap year.
const longestPause = 40

// next is the first minute after a local time, which is written as one in UTC, that the fields
// name; zero where there is none.
func (f *fields) next(after time.Time) time.Time {
	t := after.Truncate(time.Minute).Add(time.Minute)
	year, month, day := t.Date()
	minute := t.Hour()*60 + t.Minute()
	for last := year + longestPause + 1; year <= last; {
		if f.months>>month&1 != 0 {
			for days := f.month(year, month) >> day << day; days != 0; days &= days - 1 {
				in := bits.TrailingZeros64(days)
				if in > day {
					minute = 0
				}
				if at := f.minuteOfDay(minute); at >= 0 {
					return time.Date(year, month, in, at/60, at%60, 0, 0, time.UTC)
				}
			}
		}
		day, minute = 1, 0
		if month++; month > time.December {
			year, month = year+1, time.January
		}
	}
	return time.Time{}
}

// minuteOfDay is the first minute of a day, from one of them on, that the fields name; -1 where
// there is none.
func (f *fields) minuteOfDay(from int) int {
	hour, minute := from/60, from%60
	for hours := f.hours >> hour << hour; hours != 0; hours &= hours - 1 {
		in := bits.TrailingZeros64(hours)
		if in > hour {
			minute = 0
		}
		if minutes := f.minutes >> minute << minute; minutes != 0 {
			return in*60 + bits.TrailingZeros64(minutes)
		}
	}
	return -1
}
