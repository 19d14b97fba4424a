/* Products of matrices: of fragments that threads of a subgroup hold, and of tiles in shared memory. */

/* A fragment: the digits of the thread index, then those of the value index, as (step, extent). */
struct dlc_held {
    int rows, columns, width, count;
    const int16_t *digits;
};

static const int16_t *dlc_product_of(const int16_t *digits, int *product)
{
    *product = 1;
    for (int i = 0; i < digits[0]; ++i)
        *product *= digits[2 + 2 * i];
    return digits + 1 + 2 * digits[0];
}

static const int16_t *dlc_read_held(struct dlc_held *held, int rows, int columns, const int16_t *digits)
{
    held->rows = rows;
    held->columns = columns;
    held->digits = digits;
    return dlc_product_of(dlc_product_of(digits, &held->width), &held->count);
}

static int dlc_digits_sum(const int16_t *digits, int number)
{
    int sum = 0;
    for (int i = 0; i < digits[0]; ++i) {
        sum += number % digits[2 + 2 * i] * digits[1 + 2 * i];
        number /= digits[2 + 2 * i];
    }
    return sum;
}

static int dlc_element(const struct dlc_held *held, int thread, int number)
{
    return dlc_digits_sum(held->digits, thread) + dlc_digits_sum(held->digits + 1 + 2 * held->digits[0], number);
}

enum { DLC_F32, DLC_I32, DLC_F16, DLC_BF16, DLC_I8, DLC_U8, DLC_E4M3, DLC_E5M2 };
#define DLC_ELEMENTS 4096
#define DLC_TILE (256 * 32)

static const int dlc_sizes[] = {4, 4, 2, 2, 1, 1, 1, 1};

/* Decode a float with these numbers of exponent and mantissa bits; the largest exponent means infinity or NaN. */
static double dlc_small_float(unsigned bits, int exponent, int mantissa)
{
    const int bias = (1 << (exponent - 1)) - 1, power = bits >> mantissa & ((1 << exponent) - 1);
    const double part = bits & ((1u << mantissa) - 1), sign = bits >> (exponent + mantissa) & 1 ? -1 : 1;
    if (power == (1 << exponent) - 1)
        return part ? NAN : sign * INFINITY;
    return sign * (power ? ldexp(ldexp(1, mantissa) + part, power - bias - mantissa)
                         : ldexp(part, 1 - bias - mantissa));
}

static double dlc_decoded(const char *at, int type)
{
    float value;
    int32_t whole;
    uint16_t half;
    switch (type) {
    case DLC_F32: memcpy(&value, at, 4); return value;
    case DLC_I32: memcpy(&whole, at, 4); return whole;
    case DLC_F16: memcpy(&half, at, 2); return dlc_small_float(half, 5, 10);
    case DLC_BF16: memcpy(&half, at, 2); return dlc_small_float(half, 8, 7);
    case DLC_I8: return *(const int8_t *)at;
    case DLC_U8: return *(const uint8_t *)at;
    case DLC_E5M2: return dlc_small_float(*(const uint8_t *)at, 5, 2);
    }
    /* E4M3 has no infinities: the largest exponent is that of finite numbers, except for a mantissa of all ones (NaN). */
    half = *(const uint8_t *)at;
    if ((half & 0x7f) == 0x7f)
        return NAN;
    return (half & 0x78) == 0x78 ? (half & 0x80 ? -1 : 1) * (256.0 + 32.0 * (half & 7)) : dlc_small_float(half, 4, 3);
}

static double dlc_cut(double value, int mantissa)
{
    int power;
    const double part = frexp(value, &power);
    return mantissa && isfinite(value) ? ldexp(rint(ldexp(part, mantissa + 1)), power - mantissa - 1) : value;
}

static __thread struct {
    int64_t meetings, first;
    double a[DLC_ELEMENTS], b[DLC_ELEMENTS];
} dlc_whole;

static void dlc_gather(double *whole, const struct dlc_held *held, const char *given, int type, int mantissa)
{
    for (int thread = 0; thread < held->width; ++thread)
        for (int i = 0; i < held->count; ++i)
            whole[dlc_element(held, thread, i)] =
                dlc_cut(dlc_decoded(given + thread * DLC_VALUE + i * dlc_sizes[type], type), mantissa);
}

/* unit: dtypes of acc, a, b; m, n, k; mantissa bits; the fragments of acc, a, b */
void dlc_simt_matrix(void *acc, const uint32_t *a, const uint32_t *b, const int16_t *unit)
{
    struct dlc_held of_acc, of_a, of_b;
    const int m = unit[3], n = unit[4], k = unit[5];
    const int16_t *rest = dlc_read_held(&of_acc, m, n, unit + 7);
    dlc_read_held(&of_b, k, n, dlc_read_held(&of_a, m, k, rest));
    const int64_t lane = dlc_now.now % of_acc.width, first = dlc_now.now - lane;
    const int size_a = of_a.count * dlc_sizes[unit[1]], size_b = of_b.count * dlc_sizes[unit[2]];
    char *own = dlc_now.values[dlc_now.rounds[dlc_now.now] & 1] + dlc_now.now * DLC_VALUE;
    if (size_a > DLC_VALUE / 2 || size_b > DLC_VALUE / 2 || m * k > DLC_ELEMENTS || k * n > DLC_ELEMENTS)
        dlc_stop("matrices of %d x %d x %d are too large to be simulated", m, n, k);
    if (first + of_acc.width > dlc_now.count)
        dlc_stop("a product of matrices needs %d threads, and the group has fewer", of_acc.width);
    memcpy(own, a, size_a);
    memcpy(own + DLC_VALUE / 2, b, size_b);
    const char *given = dlc_given() + first * DLC_VALUE;
    if (dlc_whole.meetings != dlc_now.meetings || dlc_whole.first != first) {
        dlc_gather(dlc_whole.a, &of_a, given, unit[1], unit[6]);
        dlc_gather(dlc_whole.b, &of_b, given + DLC_VALUE / 2, unit[2], unit[6]);
        dlc_whole.meetings = dlc_now.meetings;
        dlc_whole.first = first;
    }
    for (int i = 0; i < of_acc.count; ++i) {
        const int element = dlc_element(&of_acc, lane, i);
        const double *row = dlc_whole.a + element / n * k, *column = dlc_whole.b + element % n;
        double sum = unit[0] == DLC_F32 ? ((float *)acc)[i] : ((int32_t *)acc)[i];
        for (int j = 0; j < k; ++j)
            sum += row[j] * column[j * n];
        if (unit[0] == DLC_F32)
            ((float *)acc)[i] = (float)sum;
        else
            ((int32_t *)acc)[i] = (int32_t)(int64_t)sum;
    }
}

/* block: rows, columns, bytes of an element, the fragment */
void dlc_simt_blocks(uint32_t *to, const void *from, int count, const int16_t *block)
{
    struct dlc_held held;
    dlc_read_held(&held, block[0], block[1], block + 3);
    const int64_t lane = dlc_now.now % held.width, first = dlc_now.now - lane;
    dlc_simt_give(&from, sizeof from);
    const char *given = dlc_given();
    for (int i = 0; i < count * held.count; ++i) {
        const int element = dlc_element(&held, lane, i % held.count);
        const int64_t thread = first + i / held.count * held.rows + element / held.columns;
        const char *row;
        if (thread >= dlc_now.count)
            dlc_stop("the address of a row comes from thread %lld, which the group does not have", (long long)thread);
        memcpy(&row, given + thread * DLC_VALUE, sizeof row);
        dlc_copy((char *)to + i * block[2], row + element % held.columns * block[2], block[2]);
    }
}

/* Products of tiles in shared memory. */

#define DLC_KEPT 32

static __thread struct dlc_tile {
    const void *start;
    int64_t meetings, stride;
    const int16_t *unit;
    int outer;
    float values[DLC_TILE];
} dlc_tiles[DLC_KEPT];
static __thread int dlc_next_tile;

/* The address of an element of a tile of rows of 128 bytes, with the permutation of 16-byte chunks applied. */
static const char *dlc_in_rows(const void *start, int64_t stride, int outer, int step, int other, int size)
{
    uintptr_t at = (uintptr_t)start;
    if (outer)
        at += (uintptr_t)(other * size / 128 * stride + step * 128 + other * size % 128);
    else
        at += (uintptr_t)(other * 128 + step * size);
    return (const char *)(at ^ (at >> 7 & 7) << 4);
}

/* An operand as [other dim, K] in float32, cached for all threads of a phase. */
static const float *dlc_tile_of(const void *start, int64_t stride, int outer, int others, const int16_t *unit, int of,
                                int64_t begun)
{
    const int steps = unit[5], type = unit[of], size = dlc_sizes[type];
    for (int i = 0; i < DLC_KEPT; ++i) {
        const struct dlc_tile *tile = &dlc_tiles[i];
        if (tile->start == start && tile->meetings == dlc_now.meetings + 1 && tile->unit == unit &&
            tile->outer == outer && tile->stride == stride)
            return tile->values;
    }
    struct dlc_tile *tile = &dlc_tiles[dlc_next_tile++ % DLC_KEPT];
    if (others * steps > DLC_TILE)
        dlc_stop("a matrix of %d x %d is too large to be simulated", others, steps);
    for (int i = 0; i < others; ++i)
        for (int k = 0; k < steps; ++k) {
            const char *at = dlc_in_rows(start, stride, outer, k, i, size);
            dlc_read_by_unit(at, size, begun);
            tile->values[i * steps + k] = (float)dlc_cut(dlc_decoded(at, type), unit[6]);
        }
    tile->start = start;
    tile->meetings = dlc_now.meetings + 1;
    tile->unit = unit;
    tile->outer = outer;
    tile->stride = stride;
    return tile->values;
}

static void dlc_make_product(const struct dlc_late *late)
{
    const int16_t *unit = late->unit;
    const int m = unit[3], n = unit[4], steps = unit[5];
    struct dlc_held held;
    dlc_read_held(&held, m, n, unit + 7);
    const int64_t lane = dlc_now.now % held.width;
    if (dlc_now.now - lane + held.width > dlc_now.count)
        dlc_stop("a product of matrices needs %d threads, and the group has fewer", held.width);
    const float *a = dlc_tile_of(late->from, late->stride, late->layouts[0] == 't', m, unit, 1, late->phase);
    const float *b = dlc_tile_of(late->other, late->other_stride, late->layouts[1] == 't', n, unit, 2, late->phase);
    for (int i = 0; i < held.count; ++i) {
        const int element = dlc_element(&held, lane, i);
        const float *row = a + element / n * steps, *column = b + element % n * steps;
        double sum = unit[0] == DLC_F32 ? ((float *)late->to)[i] : ((int32_t *)late->to)[i];
        for (int k = 0; k < steps; ++k)
            sum += (double)row[k] * column[k];
        if (unit[0] == DLC_F32)
            ((float *)late->to)[i] = (float)sum;
        else
            ((int32_t *)late->to)[i] = (int32_t)(int64_t)sum;
    }
}

void dlc_simt_begin(void) { dlc_queues[dlc_now.now].open = 1; }

void dlc_simt_product(void *acc, const void *a, int64_t a_stride, const void *b, int64_t b_stride,
                      const char *layouts, const int16_t *unit)
{
    if (!dlc_queues[dlc_now.now].open)
        dlc_stop("a product of matrices outside of a batch: DLC_PRODUCTS_BEGIN is missing");
    struct dlc_late *late = dlc_add_late(dlc_queue_of(&dlc_queues[dlc_now.now].products));
    late->to = acc;
    late->from = a;
    late->other = b;
    late->stride = a_stride;
    late->other_stride = b_stride;
    late->unit = unit;
    late->layouts = layouts;
}

void dlc_simt_end(void)
{
    dlc_queues[dlc_now.now].open = 0;
    ++dlc_queue_of(&dlc_queues[dlc_now.now].products)->begun;
}

void dlc_simt_products(int but)
{
    dlc_settle(dlc_queue_of(&dlc_queues[dlc_now.now].products), but, dlc_make_product);
}
